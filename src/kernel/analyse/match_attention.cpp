#include <algorithm>

#include "kernel/analyse/attention.h"
#include "kernel/schedule/stage_plan.h"

namespace tessera {
namespace {

bool is_zero(const Expr& e) { return e.is(ExprKind::Const) && is_float(e.dtype()) && e.node().real == 0; }

bool loads(const Expr& e, int slot) {
    std::vector<int> slots = loaded_slots(e);
    return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

// What a reduction's value is where it is loaded, with `key` for what it runs over.
Expr row_value_at(const RowReduction& r, const Expr& load, const Expr& key) {
    Bindings at{{r.over.var.node().name, key}};
    for (size_t i = 0; i < r.vars.size(); ++i) at.insert_or_assign(r.vars[i].node().name, load.arg(i));
    return substitute(r.value, at);
}

// The expression with another in the place of each occurrence of a part.
Expr replaced(const Expr& e, const Expr& part, const Expr& by) {
    return rewrite(e, [&](const Expr& x) { return x == part ? by : x; });
}

// The expression in f32 throughout: what it rounds to 16 bits on the way is not.
Expr unrounded(const Expr& e) {
    return rewrite(e, [](const Expr& x) -> Expr {
        if (!x.is(ExprKind::Cast) || x.dtype() != DType::f32) return x;
        const Expr& narrow = x.arg(0);
        const bool rounds =
            narrow.is(ExprKind::Cast) && (narrow.dtype() == DType::f16 || narrow.dtype() == DType::bf16);
        return rounds && narrow.arg(0).dtype() == DType::f32 ? narrow.arg(0) : x;
    });
}

}  // namespace

std::optional<AttentionWeights> match_weights(const Expr& weights, const Expr& key, const FindRow& find_row,
                                              Rounding rounding) {
    auto seen = [&](const Expr& e) { return rounding == Rounding::Kept ? e : unrounded(e); };
    auto find = [&](int slot) {
        auto found = find_row(slot);
        if (found) found->value = seen(found->value);
        return found;
    };
    Expr w = seen(weights);
    std::vector<Expr> conditions;
    while (w.is(ExprKind::Select)) {
        const bool then = is_zero(w.arg(1));
        if (!then && !is_zero(w.arg(2))) return std::nullopt;
        conditions.push_back(then ? w.arg(0) : logical_not(w.arg(0)));
        w = then ? w.arg(2) : w.arg(1);
    }
    if (!w.is(ExprKind::Div) || !w.arg(0).is(ExprKind::Call) || w.arg(0).node().fn != Fn::Exp) return std::nullopt;
    const Expr &e = w.arg(0), &total = w.arg(1);
    if (!e.arg(0).is(ExprKind::Sub) || !total.is(ExprKind::Load)) return std::nullopt;
    const Expr &score = e.arg(0).arg(0), &most = e.arg(0).arg(1);
    if (!most.is(ExprKind::Load)) return std::nullopt;
    AttentionWeights out{score, most.node().slot, total.node().slot, int_const(0, DType::boolean), total};
    auto max = find(out.max), sum = find(out.sum);
    if (!max || !sum || max->combine != ReduceOp::Max || sum->combine != ReduceOp::Sum) return std::nullopt;
    if (max->vars.size() != most.args().size() || sum->vars.size() != total.args().size()) return std::nullopt;
    if (depends_on(most, key) || depends_on(total, key)) return std::nullopt;
    if (!(max->over.extent == sum->over.extent)) return std::nullopt;
    if (!(row_value_at(*max, most, key) == score) || !(row_value_at(*sum, total, key) == e)) return std::nullopt;
    // A weight is NaN exactly where the sum of its row is.
    for (const Expr& c : conditions) {
        Expr row = replaced(c, call(Fn::IsNan, {w}), call(Fn::IsNan, {total}));
        Expr rest = replaced(row, call(Fn::IsNan, {total}), int_const(0, DType::boolean));
        if (depends_on(row, key) || loads(rest, out.max) || loads(rest, out.sum)) return std::nullopt;
        out.blind = logical_or(out.blind, row);
    }
    return out;
}

namespace {

// Whether the map reads `product` element by element, each index being an axis of its own.
bool is_epilogue(const Stage& map, const Stage& product) {
    if (!map.reduce.empty()) return false;
    std::vector<Expr> all = loads_in(map.value, product.buffer);
    if (all.empty()) return false;
    std::vector<bool> used(map.axes.size());
    for (const Expr& load : all)
        if (!(load == all[0])) return false;
    for (size_t d = 0; d < product.axes.size(); ++d) {
        const Expr& at = all[0].arg(d);
        if (product.axes[d].extent.is_int(1)) continue;
        size_t axis = 0;
        while (axis < map.axes.size() && !(map.axes[axis].var == at)) ++axis;
        if (axis == map.axes.size() || used[axis]) return false;
        used[axis] = true;
    }
    for (size_t i = 0; i < map.axes.size(); ++i)
        if (!used[i] && !map.axes[i].extent.is_int(1)) return false;
    return true;
}

bool stores_its_axes(const Stage& s) {
    return std::equal(s.store.begin(), s.store.end(), s.axes.begin(), s.axes.end(),
                      [](const Expr& at, const ReduceAxis& axis) { return at == axis.var; });
}

}  // namespace

std::optional<Attention> match_attention(const Compute& compute, Rounding rounding) {
    // Scores, their maximum and sum, the product with V; perhaps a map of it.
    const auto& stages = compute.stages;
    if (stages.size() < 4 || stages.size() > 5) return std::nullopt;
    Attention a;
    const Stage& scores = stages[0];
    a.product = &stages[3];
    if (stages.size() == 5) {
        a.epilogue = &stages[4];
        if (size_t(a.product->buffer) < compute.params || !is_epilogue(*a.epilogue, *a.product)) return std::nullopt;
    }
    const Stage& last = a.epilogue ? *a.epilogue : *a.product;
    for (const Stage& s : stages) {
        if (&s != &last && (size_t(s.buffer) < compute.params || !stores_its_axes(s))) return std::nullopt;
        if (&s == &last && size_t(s.buffer) >= compute.params) return std::nullopt;
        DType t = compute.buffers[size_t(s.buffer)].dtype;
        if (&s != a.epilogue && t != compute.buffers[size_t(scores.buffer)].dtype) return std::nullopt;
        if (&s != a.epilogue && s.reduce.size() != 1) return std::nullopt;
    }
    DType t = compute.buffers[size_t(scores.buffer)].dtype;
    if (t != DType::f32 && t != DType::f64) return std::nullopt;
    auto is_product = [](const Stage& s) {
        return s.combine == ReduceOp::Sum && s.value.is(ExprKind::Mul) && s.value.args().size() == 2;
    };
    if (!is_product(scores) || !is_product(*a.product)) return std::nullopt;

    a.key = a.product->reduce[0];
    auto find = [&](int slot) -> std::optional<RowReduction> {
        for (size_t i : {1, 2}) {
            if (stages[i].buffer != slot) continue;
            RowReduction r{{}, stages[i].reduce[0], stages[i].combine, stages[i].value};
            for (const ReduceAxis& axis : stages[i].axes) r.vars.push_back(axis.var);
            return r;
        }
        return std::nullopt;
    };
    const int side = loads(a.product->value.arg(0), stages[2].buffer) ? 0 : 1;
    a.v = a.product->value.arg(size_t(1 - side));
    auto weights = match_weights(a.product->value.arg(size_t(side)), a.key.var, find, rounding);
    if (!weights) return std::nullopt;
    a.weights = *weights;
    for (const Stage& s : stages)
        if (size_t(s.buffer) >= compute.params && loads(a.v, s.buffer)) return std::nullopt;

    // Q and K over the axes of the product.
    std::vector<Expr> reads = loads_in(a.weights.score, scores.buffer);
    if (reads.empty() || loads(a.weights.blind, scores.buffer)) return std::nullopt;
    for (const Expr& r : reads)
        if (!(r == reads[0])) return std::nullopt;
    a.score_load = reads[0];
    a.depth = {index_var("%depth", scores.reduce[0].extent.as_int()), scores.reduce[0].extent};
    Bindings at{{scores.reduce[0].var.node().name, a.depth.var}};
    for (size_t i = 0; i < scores.axes.size(); ++i)
        at.insert_or_assign(scores.axes[i].var.node().name, a.score_load.arg(i));
    a.q = substitute(scores.value.arg(0), at);
    a.k = substitute(scores.value.arg(1), at);
    if (depends_on(a.q, a.key.var)) std::swap(a.q, a.k);
    if (depends_on(a.q, a.key.var) || !depends_on(a.k, a.key.var) || !depends_on(a.v, a.key.var)) return std::nullopt;
    std::optional<size_t> query, column;
    const Expr& w = a.product->value.arg(size_t(side));
    for (size_t i = 0; i < a.product->axes.size(); ++i) {
        const ReduceAxis& axis = a.product->axes[i];
        if (axis.extent.is_int(1)) continue;
        const bool in_v = depends_on(a.v, axis.var), in_w = depends_on(w, axis.var);
        if (in_v && !in_w) {
            if (column) return std::nullopt;
            column = i;
        } else if (!in_v && depends_on(a.q, axis.var) && !depends_on(a.k, axis.var)) {
            // Of several, the longest in vectors.
            auto size = [&](size_t axis_) { return a.product->axes[axis_].extent.as_int().value_or(1 << 20); };
            if (!query || size(i) >= size(*query)) query = i;
        }
    }
    if (!column) return std::nullopt;
    a.query = query;
    a.column = *column;
    for (size_t i = 0; i < a.product->axes.size(); ++i)
        if (i != a.query && i != a.column) a.outer.push_back(i);
    if (!a.depth.extent.as_int() || !a.product->axes[a.column].extent.as_int()) return std::nullopt;
    return a;
}

}  // namespace tessera
