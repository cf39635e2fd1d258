#include "kernel/analyse/known_bounds.h"

#include <algorithm>

namespace tessera {
namespace {

const Stage* writer(const Compute& compute, const Expr& load) {
    if (!load.is(ExprKind::Load) || size_t(load.node().slot) < compute.params) return nullptr;
    for (const Stage& stage : compute.stages)
        if (stage.buffer == load.node().slot) return stage.fold ? nullptr : &stage;
    return nullptr;
}

// What a stage computes for the element that is loaded; its reductions over `reduced`.
Expr value_at(const Stage& stage, const Expr& load, const std::vector<ReduceAxis>& reduced = {}) {
    Bindings at;
    for (size_t i = 0; i < stage.axes.size(); ++i) at.emplace(stage.axes[i].var.node().name, load.arg(i));
    for (size_t i = 0; i < reduced.size(); ++i) at.emplace(stage.reduce[i].var.node().name, reduced[i].var);
    return substitute(stage.value, at);
}

// What is loaded, where that is a copy of something.
Expr original(const Compute& compute, Expr load) {
    for (const Stage* stage = writer(compute, load); stage && stage->reduce.empty() && stage->value.is(ExprKind::Load);
         stage = writer(compute, load))
        load = value_at(*stage, load);
    return load;
}

// A sum of exp(x - m), m the largest x of those that are summed: one of its terms is 1, or it is no number.
bool sums_from_one(const Compute& compute, const Stage& sum) {
    if (sum.reduce.empty() || sum.combine != ReduceOp::Sum) return false;
    const Stage* exps = writer(compute, sum.value);
    const Expr term = exps && exps->reduce.empty() ? value_at(*exps, sum.value) : sum.value;
    if (!term.is(ExprKind::Call) || term.node().fn != Fn::Exp || !term.arg(0).is(ExprKind::Sub)) return false;
    const Expr x = term.arg(0).arg(0), largest = original(compute, term.arg(0).arg(1));
    const Stage* most = writer(compute, largest);
    if (!most || most->combine != ReduceOp::Max || most->reduce.size() != sum.reduce.size()) return false;
    for (size_t i = 0; i < sum.reduce.size(); ++i) {
        const ReduceAxis &ours = sum.reduce[i], &theirs = most->reduce[i];
        if (!(ours.extent == theirs.extent) || depends_on(largest, ours.var)) return false;
    }
    return value_at(*most, largest, sum.reduce) == x;
}

bool has_normal_reciprocal(const Compute& compute, const Expr& divisor) {
    const Stage* stage = writer(compute, original(compute, divisor));
    if (!stage) return false;
    const bool root = stage->reduce.empty() && stage->value.is(ExprKind::Call) && stage->value.node().fn == Fn::Sqrt;
    return root || sums_from_one(compute, *stage);
}

// Whether m is the largest x over those of `axes` that it does not depend on.
bool is_largest(const Compute& compute, Expr m, const Expr& x, const std::vector<ReduceAxis>& axes) {
    m = original(compute, m);
    const Stage* most = writer(compute, m);
    if (!most || most->combine != ReduceOp::Max || most->reduce.empty()) return false;
    std::vector<ReduceAxis> along;
    for (const ReduceAxis& axis : axes)
        if (!depends_on(m, axis.var)) along.push_back(axis);
    if (along.size() != most->reduce.size()) return false;
    for (size_t i = 0; i < along.size(); ++i)
        if (!(along[i].extent == most->reduce[i].extent)) return false;
    return value_at(*most, m, along) == x;
}

// Do several elements share it?
bool is_shared(const Stage& stage, const Expr& divisor) {
    constexpr int64_t kFew = 4;
    int64_t count = 1;
    for (const ReduceAxis& axis : stage.axes)
        if (!depends_on(divisor, axis.var)) count *= axis.extent.as_int().value_or(kFew);
    return count >= kFew;
}

}  // namespace

Compute with_reciprocals(Compute compute) {
    for (Stage& stage : compute.stages) {
        if (!stage.reduce.empty()) continue;
        stage.value = rewrite(stage.value, [&](const Expr& e) {
            if (!e.is(ExprKind::Div) || !is_float(e.dtype()) || dtype_bytes(e.dtype()) < 4) return e;
            const Expr& divisor = e.arg(1);
            if (!is_shared(stage, divisor) || !has_normal_reciprocal(compute, divisor)) return e;
            return e.arg(0) * (real_const(1, e.dtype()) / divisor);
        });
    }
    return compute;
}

Compute with_bounded_exps(Compute compute) {
    for (Stage& stage : compute.stages) {
        std::vector<ReduceAxis> axes = stage.axes;
        axes.insert(axes.end(), stage.reduce.begin(), stage.reduce.end());
        stage.value = rewrite(stage.value, [&](const Expr& e) {
            const bool difference =
                e.is(ExprKind::Call) && e.node().fn == Fn::Exp && e.dtype() == DType::f32 && e.arg(0).is(ExprKind::Sub);
            if (!difference || !is_largest(compute, e.arg(0).arg(1), e.arg(0).arg(0), axes)) return e;
            return call(Fn::Exp, {min(e.arg(0), real_const(0, DType::f32))});
        });
    }
    return compute;
}

}  // namespace tessera
