// What an integer expression is seen to be a multiple of.
#pragma once

#include <cstdlib>
#include <numeric>

#include "expr/expr.h"

namespace tessera {

// 0 of what is 0; 1 where nothing is known. A remainder of two multiples is one too.
inline int64_t divisor_of(const Expr& e) {
    if (const auto known = e.as_int()) return *known < 0 ? -*known : *known;
    constexpr int64_t kMost = 4096;  // that anybody asks for
    if (e.is(ExprKind::Const) && is_int(e.dtype())) return std::abs(e.node().integer);
    int64_t made = e.is(ExprKind::Mul) ? 1 : 0;
    switch (e.kind()) {
        case ExprKind::Mul:
            for (const Expr& a : e.args()) made = std::min(kMost, made * std::gcd(kMost, divisor_of(a)));
            return made;
        case ExprKind::Add:
        case ExprKind::Sub:
        case ExprKind::Mod:
        case ExprKind::Rem:
            for (const Expr& a : e.args()) made = std::gcd(made, divisor_of(a));
            return made;
        default: return 1;
    }
}

}  // namespace tessera
