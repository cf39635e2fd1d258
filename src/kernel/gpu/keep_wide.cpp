#include "kernel/gpu/keep_wide.h"

#include <algorithm>
#include <numbers>
#include <set>

namespace tessera {
namespace {

constexpr int64_t kMostBytes = 40 << 10;  // of a row in f32

bool is_narrow_float(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// Widened after it was rounded: not rounded at all. Powers need no more digits than they had then.
Expr without_rounding(const Expr& e) {
    const bool widened = e.is(ExprKind::Cast) && e.dtype() == DType::f32 && e.arg(0).is(ExprKind::Cast) &&
                         is_narrow_float(e.arg(0).dtype()) && e.arg(0).arg(0).dtype() == DType::f32;
    if (!widened) return e;
    const Expr wide = e.arg(0).arg(0);
    if (!wide.is(ExprKind::Call) || wide.node().fn != Fn::Exp) return wide;
    return pow(constant(2, DType::f32), wide.arg(0) * constant(std::numbers::log2e, DType::f32));
}

Expr with_reciprocals(const Expr& value, const ReduceAxis& along) {
    return rewrite(value, [&](const Expr& e) {
        if (!e.is(ExprKind::Div) || e.dtype() != DType::f32 || e.arg(1).is(ExprKind::Const) ||
            depends_on(e.arg(1), along.var))
            return e;
        return e.arg(0) * (constant(1, DType::f32) / e.arg(1));
    });
}

}  // namespace

void keep_wide(Compute& compute) {
    const auto reduces = [](const Stage& s) { return !s.reduce.empty(); };
    if (std::none_of(compute.stages.begin(), compute.stages.end(), reduces)) return;
    std::set<int> widened;
    for (const Stage& stage : compute.stages) {
        const Buffer& buffer = compute.buffers[static_cast<size_t>(stage.buffer)];
        if (static_cast<size_t>(stage.buffer) < compute.params || !is_narrow_float(buffer.dtype)) continue;
        const auto row = stage.axes.empty() ? std::optional<int64_t>(1) : stage.axes.back().extent.as_int();
        if (row && *row * static_cast<int64_t>(dtype_bytes(DType::f32)) <= kMostBytes) widened.insert(stage.buffer);
    }
    for (Stage& stage : compute.stages) {
        const DType stored = compute.buffers[static_cast<size_t>(stage.buffer)].dtype;
        Expr value = rewrite(stage.value, [&](const Expr& e) {
            if (e.is(ExprKind::Load) && widened.contains(e.node().slot))
                return cast(load(e.node().slot, DType::f32, e.args()), e.dtype());
            return without_rounding(e);
        });
        if (widened.contains(stage.buffer)) value = without_rounding(cast(value, DType::f32));
        if (is_narrow_float(stored) && stage.reduce.empty() && !stage.axes.empty())
            value = with_reciprocals(value, stage.axes.back());
        stage.value = value;
    }
    for (int buffer : widened) compute.buffers[static_cast<size_t>(buffer)].dtype = DType::f32;
}

}  // namespace tessera
