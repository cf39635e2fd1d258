#include "kernel/gpu/keep_wide.h"

#include <algorithm>
#include <numbers>
#include <set>
#include <string>

#include "kernel/analyse/known_bounds.h"

namespace tessera {
namespace {

constexpr int64_t kMostBytes = 40 << 10;  // of a row in f32

bool is_narrow_float(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// Widened after it was rounded: not rounded at all.
Expr without_rounding(const Expr& e) {
    const bool widened = e.is(ExprKind::Cast) && e.dtype() == DType::f32 && e.arg(0).is(ExprKind::Cast) &&
                         is_narrow_float(e.arg(0).dtype()) && e.arg(0).arg(0).dtype() == DType::f32;
    return widened ? e.arg(0).arg(0) : e;
}

bool is_exp(const Expr& e) { return e.is(ExprKind::Call) && e.node().fn == Fn::Exp && e.dtype() == DType::f32; }

bool rounds_exp(const Expr& value) {
    bool found = false;
    visit(value,
          [&](const Expr& e) { found |= e.is(ExprKind::Cast) && is_narrow_float(e.dtype()) && is_exp(e.arg(0)); });
    return found;
}

Expr with_powers_of_two(const Expr& value) {
    return rewrite(value, [](const Expr& e) {
        if (!is_exp(e)) return e;
        return pow(constant(2, DType::f32), e.arg(0) * constant(std::numbers::log2e, DType::f32));
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
    std::set<std::string> rounded;  // stages whose powers need no more digits than 16 bits have
    for (Stage& stage : compute.stages) {
        if (rounds_exp(stage.value)) rounded.insert(stage.name);
        Expr value = rewrite(stage.value, [&](const Expr& e) {
            if (e.is(ExprKind::Load) && widened.contains(e.node().slot))
                return cast(load(e.node().slot, DType::f32, e.args()), e.dtype());
            return without_rounding(e);
        });
        if (widened.contains(stage.buffer)) value = without_rounding(cast(value, DType::f32));
        stage.value = value;
    }
    for (int buffer : widened) compute.buffers[static_cast<size_t>(buffer)].dtype = DType::f32;
    compute = with_reciprocals(std::move(compute));
    for (Stage& stage : compute.stages)
        if (rounded.contains(stage.name)) stage.value = with_powers_of_two(stage.value);
}

}  // namespace tessera
