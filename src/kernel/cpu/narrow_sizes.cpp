#include "kernel/cpu/narrow_sizes.h"

#include <algorithm>

#include "kernel/cpu/schedule_kinds.h"
#include "kernel/ir/regions.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

// Is something read at a place that is the sum of an axis and one that is reduced?
bool moves_a_window(const Stage& stage) {
    for (const Expr& load : loads_of(stage))
        for (const Expr& index : load.args())
            for (const ReduceAxis& r : stage.reduce)
                for (const ReduceAxis& a : stage.axes)
                    if (depends_on(index, r.var) && depends_on(index, a.var)) return true;
    return false;
}

}  // namespace

std::vector<std::string> open_last_axes(const Compute& compute, const Schedule& schedule) {
    std::vector<std::string> symbols;
    for (const Stage& stage : compute.stages)
        if (match_contraction(stage) || stage.fold || moves_a_window(stage)) return {};
    // Rows of open length have a variant of their own.
    auto is_row = [&](const Stage& stage, const Expr& extent) {
        return stage.reduce.size() == 1 && stage.reduce[0].extent == extent;
    };
    auto add = [&](const Expr& extent) {
        const std::string& name = extent.node().name;
        if (!extent.is(ExprKind::Var) || std::count(symbols.begin(), symbols.end(), name)) return;
        for (const Stage& stage : compute.stages)
            if (is_row(stage, extent)) return;
        if (std::count(compute.symbols.begin(), compute.symbols.end(), name)) symbols.push_back(name);
    };
    for (const Stage& stage : compute.stages)
        if (stage.reduce.size() > 1) add(stage.reduce.back().extent);
    for (const Stage& stage : schedule.compute().stages)
        if (stage.axes.size() > 1) add(stage.axes.back().extent);
    return symbols;
}

std::vector<std::string> open_inner_sizes(const Compute& compute) {
    constexpr int64_t kFew = 8;
    std::vector<std::string> symbols;
    auto add = [&](const Expr& size) {
        const std::string& name = size.node().name;
        if (size.is(ExprKind::Var) && std::count(compute.symbols.begin(), compute.symbols.end(), name) &&
            !std::count(symbols.begin(), symbols.end(), name))
            symbols.push_back(name);
    };
    for (const Stage& stage : compute.stages) {
        if (!stage.reduce.empty()) return {};
        if (!stage.value.is(ExprKind::Load) || stage.axes.size() < 2) continue;
        if (stage.axes.back().extent.as_int().value_or(kFew) < kFew) add(stage.axes[stage.axes.size() - 2].extent);
        for (const Expr& load : loads_of(stage)) {
            const std::vector<Expr>& shape = compute.buffers[size_t(load.node().slot)].shape;
            if (!shape.empty() && !depends_on(load.args().back(), stage.axes.back().var)) add(shape.back());
        }
    }
    return symbols;
}

Compute with_size(const Compute& compute, const std::string& symbol, const Expr& size) {
    Compute made = compute;
    const Bindings known{{symbol, size}};
    for (Buffer& b : made.buffers)
        for (auto* list : {&b.shape, &b.strides})
            for (Expr& e : *list) e = substitute(e, known);
    for (Stage& stage : made.stages) {
        Bindings bindings = known;
        for (auto* axes : {&stage.axes, &stage.reduce})
            for (ReduceAxis& axis : *axes) {
                axis.extent = substitute(axis.extent, known);
                const std::string name = axis.var.node().name;
                axis.var = index_var(name, axis.extent.as_int());
                bindings.insert_or_assign(name, axis.var);
            }
        for (Expr& e : stage.store) e = substitute(e, bindings);
        stage.value = substitute(stage.value, bindings);
    }
    return made;
}

void replace_size(Lowered& lowered, const std::string& symbol, const Expr& size) {
    const Bindings known{{symbol, size}};
    for (Buffer& b : lowered.kernel.buffers)
        for (auto* list : {&b.shape, &b.strides})
            for (Expr& e : *list) e = substitute(e, known);
    lowered.kernel.body = substitute(lowered.kernel.body, known);
}

bool align_sizes(Lowered& narrow, Lowered& general, const std::string& symbol) {
    const size_t shared = general.kernel.params - general.scratch.size();
    if (shared != narrow.kernel.params - narrow.scratch.size()) return false;
    auto is_open = [&](const Buffer& b) {
        return std::any_of(b.shape.begin(), b.shape.end(), [&](const Expr& e) { return mentions(e, symbol); });
    };
    for (size_t slot = 0; slot < shared; ++slot)
        if (!narrow.kernel.buffers[slot].strides.empty() || !general.kernel.buffers[slot].strides.empty()) return false;
    for (size_t slot = 0; slot < shared; ++slot) {
        if (!is_open(general.kernel.buffers[slot])) continue;
        for (Kernel* kernel : {&narrow.kernel, &general.kernel})
            while (kernel->buffers[slot].shape.size() > 1) merge_dimension(*kernel, int(slot), 0);
        narrow.kernel.buffers[slot].shape = general.kernel.buffers[slot].shape;
    }
    return true;
}

}  // namespace tessera
