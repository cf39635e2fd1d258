#include "kernel/compute.h"

#include "kernel/text.h"

namespace tessera {
namespace {

// The axes as loops of the kernel, named after the stage: those of two stages may share their names.
std::vector<ReduceAxis> named_after(const Stage& stage, const std::vector<ReduceAxis>& axes, Bindings& bindings) {
    std::vector<ReduceAxis> loops;
    for (const ReduceAxis& axis : axes) {
        const std::string& name = axis.var.node().name;
        Expr extent = substitute(axis.extent, bindings);
        Expr var = index_var(stage.name + "." + name, extent.as_int());
        bindings.insert_or_assign(name, var);
        loops.push_back({var, extent});
    }
    return loops;
}

Stmt nest(const std::vector<ReduceAxis>& loops, Stmt body) {
    for (size_t i = loops.size(); i-- > 0;)
        body = for_loop({.var = loops[i].var, .extent = loops[i].extent, .body = body});
    return body;
}

Stmt plain_nest(const Stage& stage, const std::vector<Buffer>& buffers) {
    Bindings bindings;
    std::vector<ReduceAxis> axes = named_after(stage, stage.axes, bindings);
    std::vector<ReduceAxis> reduce = named_after(stage, stage.reduce, bindings);
    std::vector<Expr> to;
    for (const Expr& index : stage.store) to.push_back(substitute(index, bindings));
    Expr value = substitute(stage.value, bindings);
    if (reduce.empty()) return nest(axes, store(stage.buffer, to, value));
    DType dtype = buffers[static_cast<size_t>(stage.buffer)].dtype;
    Stmt init = store(stage.buffer, to, identity(stage.combine, dtype));
    Stmt update = nest(reduce, store(stage.buffer, to, value, stage.combine));
    return nest(axes, seq({init, update}));
}

}  // namespace

Expr identity(ReduceOp op, DType dtype) {
    switch (op) {
        case ReduceOp::Sum: return constant(0, dtype);
        case ReduceOp::Prod: return constant(1, dtype);
        case ReduceOp::Min: return infinity(dtype);
        case ReduceOp::Max: return infinity(dtype, true);
    }
    return constant(0, dtype);
}

Kernel plain_nests(const Compute& compute) {
    Kernel kernel;
    kernel.name = compute.name;
    kernel.symbols = compute.symbols;
    kernel.buffers = compute.buffers;
    for (Buffer& b : kernel.buffers) b.scope = Scope::Global;
    kernel.params = kernel.buffers.size();
    std::vector<Stmt> nests;
    for (const Stage& stage : compute.stages) nests.push_back(plain_nest(stage, compute.buffers));
    kernel.body = seq(std::move(nests));
    return kernel;
}

std::string to_string(const Compute& compute) {
    SlotNames names = buffer_names(compute.buffers);
    std::string text = "compute " + heading(compute.name, compute.symbols, compute.buffers, compute.params);
    for (size_t i = compute.params; i < compute.buffers.size(); ++i)
        text += fmt::format("  {} {}\n", declaration(compute.buffers[i], names), scope_name(compute.buffers[i].scope));
    auto ranges = [&](std::string_view word, const std::vector<ReduceAxis>& axes) {
        std::string out;
        for (const ReduceAxis& axis : axes)
            out += fmt::format("{}{} < {}", out.empty() ? word : ", ", to_string(axis.var, names),
                               to_string(axis.extent, names));
        return out;
    };
    for (const Stage& stage : compute.stages)
        text += fmt::format("  {}{}: {} {} {}{}\n", name_text(stage.name), ranges(" for ", stage.axes),
                            access_text({stage.buffer, stage.store}, names),
                            assignment_text(stage.reduce.empty() ? std::nullopt : std::optional(stage.combine)),
                            to_string(stage.value, names), ranges(" over ", stage.reduce));
    return text + "}\n";
}

}  // namespace tessera
