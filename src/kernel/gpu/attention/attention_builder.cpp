#include "kernel/gpu/attention/attention_builder.h"

#include <cmath>

namespace tessera {

AttentionBuilder::AttentionBuilder(const Compute& compute, const Attention& attention)
    : compute_(compute), a_(attention) {
    kernel_.name = compute.name;
    kernel_.symbols = compute.symbols;
    kernel_.buffers.assign(compute.buffers.begin(), compute.buffers.begin() + std::ptrdiff_t(compute.params));
    kernel_.params = compute.params;
}

int AttentionBuilder::add(std::string name, DType dtype, const std::vector<int64_t>& sizes) {
    auto taken = [&] {
        for (const Buffer& b : kernel_.buffers)
            if (b.name == name) return true;
        return false;
    };
    while (taken()) name += "_";
    Buffer made{.name = std::move(name), .dtype = dtype, .shape = {}, .scope = Scope::Shared};
    for (int64_t s : sizes) made.shape.push_back(s);
    kernel_.buffers.push_back(std::move(made));
    return int(kernel_.buffers.size()) - 1;
}

void AttentionBuilder::find_score(double factor) {
    score_ = split_score(a_.weights.score);
    if (plain_score() && factor > 0)
        score_.scale *= factor;
    else if (factor != 1)
        score_.value = map_loads(score_.value, [&](const Expr& x) -> Expr {
            return x == a_.score_load ? x * constant(factor, DType::f32) : x;
        });
}

LoopKind AttentionBuilder::pairs_of_scores() const {
    bool loads = false;
    auto look = [&](const Expr& e) {
        visit(e, [&](const Expr& x) { loads |= x.is(ExprKind::Load) && !(x == a_.score_load); });
    };
    look(score_.value);
    for (const Expr& c : score_.conditions) look(c);
    return loads ? LoopKind::Vector : LoopKind::Unrolled;
}

Expr AttentionBuilder::score(const Bindings& at, const Expr& product, std::optional<size_t> skipped) const {
    auto placed = [&](const Expr& e) {
        Expr marked =
            map_loads(e, [&](const Expr& x) -> Expr { return x == a_.score_load ? load(-1, DType::f32, {}) : x; });
        return map_loads(substitute(marked, at),
                         [&](const Expr& x) -> Expr { return x.node().slot == -1 ? product : x; });
    };
    Expr value = placed(score_.value);
    for (size_t i = score_.conditions.size(); i-- > 0;)
        if (i != skipped) value = select(placed(score_.conditions[i]), value, real(-INFINITY));
    return value;
}

AttentionBuilder::Finished AttentionBuilder::finished(Bindings at, Expr value, const Expr& weights) const {
    auto with = [&](const Expr& e, const std::function<bool(const Expr&)>& which, const Bindings& names,
                    const Expr& by) {
        Expr marked = map_loads(e, [&](const Expr& x) -> Expr { return which(x) ? load(-1, DType::f32, {}) : x; });
        return map_loads(substitute(marked, names),
                         [&](const Expr& x) -> Expr { return x.node().slot == -1 ? by : x; });
    };
    if (bounds(keys()).low.value_or(0) < 1) value = select(eq(keys(), 0), real(0), value);
    if (!a_.weights.blind.is(ExprKind::Const)) {
        const Expr total = select(eq(weights, real(0)), real(NAN), weights);
        auto is_sum = [&](const Expr& x) { return x == a_.weights.sum_load; };
        value = select(with(a_.weights.blind, is_sum, at, total), real(0), value);
    }
    const Stage& product = *a_.product;
    const Stage& last = a_.epilogue ? *a_.epilogue : product;
    if (a_.epilogue) {
        Bindings own_names;
        for (const ReduceAxis& axis : last.axes) own_names.insert_or_assign(axis.var.node().name, Expr(0));
        Expr read;
        visit(last.value, [&](const Expr& x) {
            if (x.is(ExprKind::Load) && x.node().slot == product.buffer) read = x;
        });
        for (size_t n = 0; n < product.axes.size(); ++n)
            if (!product.axes[n].extent.is_int(1))
                own_names.insert_or_assign(read.arg(n).node().name, substitute(product.axes[n].var, at));
        auto is_product = [&](const Expr& x) { return x.node().slot == product.buffer; };
        value = with(last.value, is_product, own_names, value);
        at = std::move(own_names);
    }
    Finished made{.buffer = last.buffer, .to = {}, .value = std::move(value)};
    for (const Expr& e : last.store) made.to.push_back(substitute(e, at));
    return made;
}

}  // namespace tessera
