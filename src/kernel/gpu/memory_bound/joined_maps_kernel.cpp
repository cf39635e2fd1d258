#include "kernel/gpu/memory_bound/joined_maps_kernel.h"

#include <algorithm>
#include <map>

#include "kernel/analyse/stages.h"
#include "kernel/gpu/gpu_loops.h"

namespace tessera {
namespace {

constexpr int64_t kAccessBytes = 16;

// Whether it lies where the element of these axes lies, in a buffer of as many elements.
bool is_own_place(const std::vector<Expr>& at, const Buffer& buffer, const std::vector<ReduceAxis>& axes) {
    if (at.size() != buffer.shape.size() || !buffer.strides.empty()) return false;
    Expr place = 0, own = 0, elements = 1;
    for (size_t i = 0; i < at.size(); ++i) {
        place = place * buffer.shape[i] + at[i];
        elements = elements * buffer.shape[i];
    }
    for (const ReduceAxis& axis : axes) own = own * axis.extent + axis.var;
    return place == own && elements == elements_of(axes);
}

// Maps whose elements are made of others at the same place, or at places that are the same for all.
bool are_maps_of_own_elements(const Compute& compute) {
    const std::vector<ReduceAxis>& axes = compute.stages[0].axes;
    for (const Stage& stage : compute.stages) {
        if (!stage.reduce.empty() || stage.axes.size() != axes.size() || axes.empty()) return false;
        for (size_t i = 0; i < axes.size(); ++i)
            if (!(stage.axes[i].var == axes[i].var) || !(stage.axes[i].extent == axes[i].extent)) return false;
        if (!is_own_place(stage.store, compute.buffers[size_t(stage.buffer)], axes)) return false;
        for (const Expr& load : loads_of(stage)) {
            const bool same = std::none_of(load.args().begin(), load.args().end(), [&](const Expr& at) {
                return std::any_of(axes.begin(), axes.end(),
                                   [&](const ReduceAxis& a) { return depends_on(at, a.var); });
            });
            const bool made = std::any_of(compute.stages.begin(), compute.stages.end(),
                                          [&](const Stage& s) { return s.buffer == load.node().slot; });
            if ((!same || made) && !is_own_place(load.args(), compute.buffers[size_t(load.node().slot)], axes))
                return false;
        }
        // Only what is loaded tells one element from another.
        for (const ReduceAxis& a : axes)
            if (used_beside_loads(stage.value, a.var)) return false;
    }
    return true;
}

// All stages in one loop over vectors of neighbours, whose names end in a number.
std::optional<Kernel> in_one_loop(const Compute& compute, size_t number) {
    if (!are_maps_of_own_elements(compute)) return {};
    const std::vector<ReduceAxis>& axes = compute.stages[0].axes;
    const auto total = elements_of(axes).as_int();
    if (!total || *total < 1) return {};
    std::map<int, Expr> made;  // by buffer: what a stage stores there
    int64_t widest = 1;
    for (const Buffer& b : compute.buffers) widest = std::max(widest, int64_t(dtype_bytes(b.dtype)));
    int64_t lanes = std::max<int64_t>(1, kAccessBytes / widest);
    while (*total % lanes) lanes /= 2;

    Kernel kernel;
    kernel.name = compute.name;
    kernel.symbols = compute.symbols;
    kernel.buffers.assign(compute.buffers.begin(), compute.buffers.begin() + std::ptrdiff_t(compute.params));
    kernel.params = compute.params;
    const Expr vectors = *total / lanes, vector = loop_var(fmt::format("vector{}", number), vectors);
    const Expr lane = loop_var(fmt::format("lane{}", number), lanes);
    const Expr place = lanes == 1 ? vector : vector * lanes + lane;
    const auto along = [&](const std::vector<Expr>& at) {
        return std::any_of(at.begin(), at.end(), [&](const Expr& e) {
            return std::any_of(axes.begin(), axes.end(), [&](const ReduceAxis& a) { return depends_on(e, a.var); });
        });
    };
    std::vector<Stmt> stores;
    for (const Stage& stage : compute.stages) {
        Expr value = rewrite(stage.value, [&](const Expr& e) -> Expr {
            if (!e.is(ExprKind::Load)) return e;
            const int slot = e.node().slot;
            if (auto other = made.find(slot); other != made.end()) return other->second;
            if (!along(e.args())) return e;
            kernel.buffers[size_t(slot)].shape = {*total};
            return load(slot, e.dtype(), {place});
        });
        made.insert_or_assign(stage.buffer, value);
        if (size_t(stage.buffer) >= compute.params) continue;
        kernel.buffers[size_t(stage.buffer)].shape = {*total};
        stores.push_back(store(stage.buffer, {place}, value));
    }
    // The last first: the others are made of less, of which it writes over nothing.
    std::reverse(stores.begin(), stores.end());
    Stmt body = seq(std::move(stores));
    if (lanes > 1) body = loop_over(lane, lanes, LoopKind::Vector, std::move(body));
    kernel.body = loop_over(vector, vectors, LoopKind::Parallel, std::move(body));
    return kernel;
}

// The stages of which one reads what another makes, together.
std::vector<Compute> connected(const Compute& compute) {
    std::vector<Compute> all;
    for (const Stage& stage : compute.stages) {
        Compute own = compute;
        own.stages.clear();
        const std::vector<Expr> loads = loads_of(stage);
        auto reads = [&](const Compute& other) {
            return std::any_of(other.stages.begin(), other.stages.end(), [&](const Stage& s) {
                return std::any_of(loads.begin(), loads.end(),
                                   [&](const Expr& l) { return l.node().slot == s.buffer; });
            });
        };
        for (Compute& other : all)
            if (reads(other)) own.stages.insert(own.stages.end(), other.stages.begin(), other.stages.end());
        std::erase_if(all, reads);
        own.stages.push_back(stage);
        all.push_back(std::move(own));
    }
    return all;
}

// The loops of several kernels as one, a range of it for each.
Kernel side_by_side(const Compute& compute, const std::vector<Kernel>& parts) {
    Kernel kernel = parts[0];
    int64_t end = 0;
    for (const Kernel& k : parts) end += *k.body->as<For>()->extent.as_int();
    const Expr var = loop_var("vector", end), all = end;
    Stmt body;
    for (size_t i = parts.size(); i-- > 0;) {
        const For& loop = *parts[i].body->as<For>();
        end -= *loop.extent.as_int();
        Stmt own = substitute(loop.body, {{loop.var.node().name, var - end}});
        const bool last = i + 1 == parts.size();
        body = last ? own : if_then(lt(var, end + *loop.extent.as_int()), std::move(own), std::move(body));
        for (size_t b = 0; b < kernel.buffers.size(); ++b)
            if (!(parts[i].buffers[b].shape == compute.buffers[b].shape)) kernel.buffers[b] = parts[i].buffers[b];
    }
    kernel.body = loop_over(var, all, LoopKind::Parallel, std::move(body));
    return kernel;
}

}  // namespace

std::optional<Lowered> joined_maps_kernel(const Compute& compute) {
    if (compute.stages.size() < 2) return {};
    std::vector<Kernel> parts;
    for (const Compute& part : connected(compute)) {
        auto kernel = in_one_loop(part, parts.size());
        if (!kernel) return {};
        parts.push_back(std::move(*kernel));
    }
    Lowered lowered;
    lowered.kernel = parts.size() == 1 ? std::move(parts[0]) : side_by_side(compute, parts);
    return verify(lowered.kernel).ok() ? std::optional(std::move(lowered)) : std::nullopt;
}

}  // namespace tessera
