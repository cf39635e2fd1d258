#include "kernel/gpu/attention/attention_kernel.h"

#include <cmath>

#include "kernel/gpu/attention/warp_attention.h"
#include "kernel/gpu/attention/warpgroup_attention.h"

namespace tessera {
namespace {

constexpr int64_t kFewestTeamQueries = 65;  // that are worth tiles of 128

}  // namespace

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

Result<std::optional<Lowered>> attention_kernel(const Compute& compute, const Machine& machine) {
    const auto attention = match_attention(compute, Rounding::Dropped);
    if (!attention) return std::optional<Lowered>();
    const auto extent = attention->query ? attention->product->axes[*attention->query].extent.as_int() : 1;
    std::optional<Lowered> many;
    if (machine.has("wgmma") && extent.value_or(kFewestTeamQueries) >= kFewestTeamQueries)
        many = TRY(warpgroup_attention(compute, *attention));
    if (!many) many = TRY(warp_attention(compute, *attention, machine));
    if (!many || extent) return many;
    auto few = TRY(warp_attention_of_few(compute, *attention, machine));
    if (!few) return many;
    return std::optional(join_variants({std::move(*few)}, std::move(*many)));
}

}  // namespace tessera
