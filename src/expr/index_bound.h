// What indices that are at least 0 are compared with.
#pragma once

#include "expr/expr.h"

namespace tessera {

// n of max(n, 0), and any other size as it is: what is at least 0 is below both or below neither.
inline Expr index_bound(const Expr& size) {
    if (!size.is(ExprKind::Max) || size.args().size() != 2) return size;
    return size.arg(0).is_int(0) ? size.arg(1) : size.arg(1).is_int(0) ? size.arg(0) : size;
}

}  // namespace tessera
