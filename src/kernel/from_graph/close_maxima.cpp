// Maxima of masks that are made of positions: whether a query sees a key at all. A condition on positions holds for
// some key if the least key that it allows is at most the greatest.
#include <cmath>

#include "kernel/analyse/attention_score.h"
#include "kernel/from_graph/definitions.h"

namespace tessera {
namespace {

constexpr int kDeepest = 16;  // maps in maps

// The expression with maps put in; nothing where it reads memory.
std::optional<Expr> of_positions(const Expr& e, const Definitions& all, int depth = 0) {
    bool reads = false;
    Expr spelled = map_loads(e, [&](const Expr& x) -> Expr {
        const Definition& d = all.list[size_t(x.node().slot)];
        auto body =
            d.kind == Definition::Kind::Map && depth < kDeepest ? of_positions(d.body, all, depth + 1) : std::nullopt;
        reads |= !body;
        if (!body) return x;
        Bindings at;
        for (size_t i = 0; i < x.args().size(); ++i) at.emplace(fmt::format("%i{}", i), x.arg(i));
        return substitute(*body, at);
    });
    return reads ? std::nullopt : std::optional(std::move(spelled));
}

// Whether all conditions hold somewhere along the axis; each bounds it from one side.
std::optional<Expr> hold_somewhere(const std::vector<Expr>& conditions, const ReduceAxis& axis) {
    Expr low = 0, high = axis.extent - 1, others = int_const(1, DType::boolean);
    for (const Expr& c : conditions) {
        if (!depends_on(c, axis.var)) {
            others = logical_and(others, c);
            continue;
        }
        const bool less = c.is(ExprKind::Lt);
        if ((!less && !c.is(ExprKind::Le)) || c.arg(0).dtype() != DType::i64) return {};
        const Expr gap = c.arg(1) - c.arg(0) - (less ? 1 : 0);  // at least 0
        const auto step = step_of(gap, axis.var);
        if (!step || !(step->is_int(1) || step->is_int(-1))) return {};
        const Expr rest = gap - axis.var * *step;
        if (depends_on(rest, axis.var)) return {};
        if (step->is_int(1))
            low = max(low, 0 - rest);
        else
            high = min(high, rest);
    }
    return logical_and(others, le(low, high));
}

}  // namespace

void close_maxima(Definitions& all) {
    for (Definition& d : all.list) {
        if (d.kind != Definition::Kind::Reduction || d.combine != ReduceOp::Max || d.reduce.size() != 1) continue;
        if (!is_float(d.dtype) || d.dtype == DType::f64) continue;
        const auto body = of_positions(d.body, all);
        if (!body) continue;
        const AttentionScore mask = split_score(*body);
        if (!mask.value.is(ExprKind::Const) || mask.conditions.empty()) continue;
        const auto seen = hold_somewhere(mask.conditions, d.reduce[0]);
        if (!seen) continue;
        const Expr value = constant(mask.value.node().real * mask.scale, DType::f32);
        d.body = cast(select(*seen, value, constant(-INFINITY, DType::f32)), d.dtype);
        d.kind = Definition::Kind::Map;
        d.reduce.clear();
    }
}

}  // namespace tessera
