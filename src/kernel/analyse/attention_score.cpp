#include "kernel/analyse/attention_score.h"

#include <cmath>

namespace tessera {
namespace {

bool is_real_const(const Expr& e) { return e.is(ExprKind::Const) && is_float(e.dtype()); }
bool is_never(const Expr& e) { return is_real_const(e) && std::isinf(e.node().real) && e.node().real < 0; }

// e in f32, nothing rounded on the way.
Expr widened(const Expr& e) {
    if (is_real_const(e)) return constant(e.node().real, DType::f32);
    if (e.is(ExprKind::Cast) && is_float(e.dtype()) && is_float(e.arg(0).dtype()) && e.arg(0).dtype() != DType::f64)
        return widened(e.arg(0));
    if (e.is(ExprKind::Select)) return select(e.arg(0), widened(e.arg(1)), widened(e.arg(2)));
    if (e.is(ExprKind::Add)) return widened(e.arg(0)) + widened(e.arg(1));
    if (e.is(ExprKind::Sub)) return widened(e.arg(0)) - widened(e.arg(1));
    if (e.is(ExprKind::Mul)) return widened(e.arg(0)) * widened(e.arg(1));
    if (e.is(ExprKind::Div)) return widened(e.arg(0)) / widened(e.arg(1));
    return e.dtype() == DType::f32 ? e : cast(e, DType::f32);
}

// The conditions outside, where they give -inf otherwise.
AttentionScore split(const Expr& e) {
    if (e.is(ExprKind::Select)) {
        const bool then = is_never(e.arg(1));
        if (then || is_never(e.arg(2))) {
            AttentionScore inner = split(e.arg(then ? 2 : 1));
            inner.conditions.insert(inner.conditions.begin(), then ? logical_not(e.arg(0)) : e.arg(0));
            return inner;
        }
    }
    if (e.is(ExprKind::Add)) {
        AttentionScore a = split(e.arg(0));
        const AttentionScore b = split(e.arg(1));
        a.conditions.insert(a.conditions.end(), b.conditions.begin(), b.conditions.end());
        auto is_nothing = [](const Expr& x) { return is_real_const(x) && x.node().real == 0; };
        a.value = is_nothing(b.value) ? a.value : is_nothing(a.value) ? b.value : a.value + b.value;
        return a;
    }
    if (e.is(ExprKind::Mul))
        for (size_t i : {0u, 1u})
            if (is_real_const(e.arg(i)) && e.arg(i).node().real > 0 && std::isfinite(e.arg(i).node().real)) {
                AttentionScore inner = split(e.arg(1 - i));
                inner.value = inner.value * e.arg(i);
                return inner;
            }
    return {{}, e};
}

void add_conjuncts(const Expr& e, std::vector<Expr>& to) {
    if (e.is(ExprKind::And)) {
        for (const Expr& arg : e.args()) add_conjuncts(arg, to);
        return;
    }
    to.push_back(e);
}

}  // namespace

AttentionScore split_score(const Expr& score) {
    AttentionScore all = split(widened(score));
    std::vector<Expr> conditions;
    for (const Expr& c : all.conditions) add_conjuncts(c, conditions);
    all.conditions = std::move(conditions);
    for (bool again = true; again;) {
        again = false;
        for (size_t i : {0u, 1u}) {
            if (!all.value.is(ExprKind::Mul) || !is_real_const(all.value.arg(i))) continue;
            const double factor = all.value.arg(i).node().real;
            if (!(factor > 0) || !std::isfinite(factor)) continue;
            all.scale *= factor;
            all.value = Expr(all.value.arg(1 - i));
            again = true;
            break;
        }
    }
    return all;
}

std::optional<Expr> causal_offset(const Expr& condition, const Expr& query, const Expr& key) {
    const bool less = condition.is(ExprKind::Lt);
    if ((!less && !condition.is(ExprKind::Le)) || condition.arg(0).dtype() != DType::i64) return {};
    const Expr gap = condition.arg(1) - condition.arg(0);  // at least 0, or 1
    if (gap.node().reads) return {};
    const auto along_key = step_of(gap, key), along_query = step_of(gap, query);
    if (!along_key || !along_query || !along_key->is_int(-1) || !along_query->is_int(1)) return {};
    const Expr rest = gap - query + key - (less ? 1 : 0);
    if (depends_on(rest, key) || depends_on(rest, query)) return {};
    return rest;
}

}  // namespace tessera
