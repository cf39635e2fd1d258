#include "kernel/analyse/scaled_load.h"

#include <cmath>

namespace tessera {

std::optional<ScaledLoad> scaled_load(const Expr& operand) {
    ScaledLoad found{operand};
    for (Expr& e = found.load; !e.is(ExprKind::Load);) {
        if (e.is(ExprKind::Cast) && is_float(e.dtype()) && is_float(e.arg(0).dtype())) {
            e = Expr(e.arg(0));
            continue;
        }
        if (!e.is(ExprKind::Mul)) return {};
        auto is_factor = [&](size_t i) { return e.arg(i).is(ExprKind::Const) && is_float(e.arg(i).dtype()); };
        if (!is_factor(0) && !is_factor(1)) return {};
        const size_t at = is_factor(0) ? 0 : 1;
        found.factor *= e.arg(at).node().real;
        e = Expr(e.arg(1 - at));
    }
    if (!std::isfinite(found.factor)) return {};
    return found;
}

}  // namespace tessera
