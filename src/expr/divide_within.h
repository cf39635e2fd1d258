// Division of indices that are known to stay below the extents of their axes, which the constructors of expr.h do not
// see where an extent is no constant.
#pragma once

#include "expr/expr.h"

namespace tessera {

// Takes the quotients and remainders of what stays below a divisor that is no constant: floordiv(i*n + j, n) is i and
// mod(i*n + j, n) is j, where the axis j has n elements. What the result is where an axis is empty does not count.
Expr divide_within(const Expr& e, const std::vector<ReduceAxis>& axes);

}  // namespace tessera
