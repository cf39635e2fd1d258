#include "kernel/gpu/prepare_operand.h"

#include <algorithm>

#include "kernel/gpu/gpu_loops.h"
#include "kernel/gpu/matrix_operand.h"

namespace tessera {
namespace {

// The load that an operand is, cast or not.
Expr load_of(const Expr& operand) {
    if (const auto found = matrix_load(operand)) return found->load;
    return operand.is(ExprKind::Cast) ? operand.arg(0) : operand;
}

// A thread for each element: where it lies in the new order, and in the old.
Kernel copy_kernel(const Compute& compute, const Expr& load, const Buffer& to, const std::vector<ReduceAxis>& order) {
    Kernel kernel;
    kernel.name = compute.name + "_prepare";
    kernel.buffers = {compute.buffers[size_t(load.node().slot)], to};
    kernel.params = 2;
    Expr total = 1;
    for (const ReduceAxis& axis : order) total = total * axis.extent;
    const Expr element = loop_var("element", total);
    Bindings values;
    std::vector<Expr> at(order.size());
    Expr left = element;
    for (size_t d = order.size(); d-- > 0;) {
        at[d] = d == 0 ? left : mod(left, order[d].extent);
        values.insert_or_assign(order[d].var.node().name, at[d]);
        left = floor_div(left, order[d].extent);
    }
    std::vector<Expr> from;
    for (const Expr& index : load.args()) from.push_back(substitute(index, values));
    kernel.body = loop_over(element, total, LoopKind::Parallel,
                            store(1, std::move(at), tessera::load(0, to.dtype, std::move(from))));
    return kernel;
}

}  // namespace

std::optional<PreparedOperand> prepare_operand(Compute& compute, const Expr& operand,
                                               const std::vector<ReduceAxis>& order) {
    const Expr load = load_of(operand);
    if (!load.is(ExprKind::Load)) return {};
    const auto slot = static_cast<size_t>(load.node().slot);
    if (slot >= compute.params || slot >= compute.known.size() || !compute.known[slot]) return {};
    std::vector<ReduceAxis> own;  // those that it has
    int64_t elements = 1;
    for (const ReduceAxis& axis : order) {
        if (!axis.extent.as_int()) return {};
        if (!depends_on(load, axis.var)) continue;
        own.push_back(axis);
        elements *= *axis.extent.as_int();
    }
    for (const Expr& index : load.args()) {
        Expr rest = index;
        for (const ReduceAxis& axis : own) {
            auto step = step_of(rest, axis.var);
            if (!step || !step->as_int()) return {};
            rest = rest - axis.var * *step;
        }
        if (!rest.as_int()) return {};
    }
    int64_t there = 1;
    for (const Expr& size : compute.buffers[slot].shape) there *= size.as_int().value_or(0);
    if (elements > there) return {};
    Buffer made{.name = compute.buffers[slot].name + "_prepared", .dtype = load.dtype(), .shape = {}};
    std::vector<Expr> at;
    for (const ReduceAxis& axis : own) {
        made.shape.push_back(axis.extent);
        at.push_back(axis.var);
    }
    PreparedOperand prepared{int(slot), int(compute.params), copy_kernel(compute, load, made, own)};

    // One more parameter: what is no parameter moves up.
    const auto first = static_cast<int>(compute.params);
    const Expr instead = tessera::load(first, load.dtype(), at);
    for (Stage& stage : compute.stages) {
        stage.value = rewrite(stage.value, [&](const Expr& x) -> Expr {
            if (!x.is(ExprKind::Load)) return x;
            if (x == load && &stage == &compute.stages[0]) return instead;
            if (x.node().slot < first) return x;
            return tessera::load(x.node().slot + 1, x.dtype(), x.args());
        });
        if (stage.buffer >= first) ++stage.buffer;
    }
    compute.buffers.insert(compute.buffers.begin() + first, std::move(made));
    compute.known.resize(compute.params);
    compute.known.push_back(true);
    ++compute.params;
    return prepared;
}

}  // namespace tessera
