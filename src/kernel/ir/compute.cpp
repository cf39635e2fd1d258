#include "kernel/ir/compute.h"

#include <fmt/format.h>

#include <set>

#include "kernel/ir/check_expr.h"
#include "kernel/ir/text.h"

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
    Stmt update = nest(reduce, store(stage.buffer, to, value, combine_of(stage)));
    return nest(axes, seq({init, update}));
}

using Problem = std::optional<std::string>;

// Everything of one stage. `written` are the buffers that are complete before it.
Problem check_stage(const Stage& stage, const Compute& compute, const std::set<int>& written) {
    VariableBounds variables;
    for (const std::string& s : compute.symbols) variables.emplace(s, symbol_bounds());
    auto none = [](int) { return false; };
    for (const std::vector<ReduceAxis>* axes : {&stage.axes, &stage.reduce})
        for (const ReduceAxis& axis : *axes) {
            if (!axis.var.is(ExprKind::Var)) return "an axis that is no variable";
            const std::string& name = axis.var.node().name;
            if (axis.extent.dtype() != DType::i64) return fmt::format("the extent of {} is no i64", name_text(name));
            if (Problem problem = check_expr(axis.extent, {}, variables, none)) return problem;
            if (!variables.emplace(name, loop_bounds(axis.extent)).second)
                return fmt::format("{} is the name of two axes, or of a size", name_text(name));
            if (Problem problem = check_expr(axis.var, {}, variables, none)) return problem;
        }
    VariableBounds outer = variables;
    for (const ReduceAxis& axis : stage.reduce) outer.erase(axis.var.node().name);
    if (Problem problem = check_access({stage.buffer, stage.store}, compute.buffers, outer, [](int) { return true; }))
        return problem;
    const Buffer& b = compute.buffers[static_cast<size_t>(stage.buffer)];
    bool inner = static_cast<size_t>(stage.buffer) >= compute.params;
    if (inner && written.contains(stage.buffer)) return fmt::format("{} has two stages", name_text(b.name));
    auto readable = [&](int slot) {
        if (slot == stage.buffer) return stage.fold;
        return static_cast<size_t>(slot) < compute.params || written.contains(slot);
    };
    if (Problem problem = check_expr(stage.value, compute.buffers, variables, readable)) return problem;
    if (stage.value.dtype() != b.dtype)
        return fmt::format("a value of {} for {}, which holds {}", dtype_name(stage.value.dtype()), name_text(b.name),
                           dtype_name(b.dtype));
    if (stage.fold && stage.reduce.empty()) return "it folds over nothing";
    bool own = true;  // element
    visit(stage.value, [&](const Expr& e) {
        if (e.is(ExprKind::Load) && e.node().slot == stage.buffer) own &= e.args() == stage.store;
    });
    if (!own) return fmt::format("it reads another element of {} than it writes", name_text(b.name));
    if (!inner) return std::nullopt;
    bool plain = stage.store.size() == stage.axes.size();
    for (size_t i = 0; plain && i < stage.store.size(); ++i) plain = stage.store[i].same(stage.axes[i].var);
    if (!plain) return fmt::format("{} is read by other stages and not stored at its axes", name_text(b.name));
    return std::nullopt;
}

}  // namespace

Status verify(const Compute& compute) {
    auto broken = [&](const std::string& problem) {
        return Error(Code::E0601, "{}", problem).at("compute " + name_text(compute.name));
    };
    if (Problem problem = check_buffers(compute.buffers, compute.params, compute.symbols)) return broken(*problem);
    VariableBounds sizes;
    for (const std::string& s : compute.symbols) sizes.emplace(s, symbol_bounds());
    for (const Buffer& b : compute.buffers)
        if (Problem problem = check_sizes(b, sizes)) return broken(*problem);
    std::set<std::string> names;
    std::set<int> written;
    for (const Stage& stage : compute.stages) {
        if (stage.name.empty() || !names.insert(stage.name).second)
            return broken(fmt::format("two stages are called {}, or one has no name", name_text(stage.name)));
        if (Problem problem = check_stage(stage, compute, written))
            return broken(fmt::format("stage {}: {}", name_text(stage.name), *problem));
        written.insert(stage.buffer);
    }
    for (size_t i = compute.params; i < compute.buffers.size(); ++i)
        if (!written.contains(static_cast<int>(i)))
            return broken(fmt::format("no stage writes {}", name_text(compute.buffers[i].name)));
    return {};
}

bool is_product(const Expr& value) {
    if (value.args().size() != 2) return false;
    if (value.is(ExprKind::Mul)) return true;
    return value.is(ExprKind::Call) && is_dot(value.node().fn);
}

std::optional<ReduceOp> combine_of(const Stage& stage) {
    if (stage.reduce.empty() || stage.fold) return std::nullopt;
    return stage.combine;
}

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
    for (size_t i = 0; i < compute.params && i < compute.known.size(); ++i)
        if (compute.known[i]) text += fmt::format("  known {}\n", names(static_cast<int>(i)));
    if (compute.halvings > 0) text += fmt::format("  halvings {}\n", compute.halvings);
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
                            access_text({stage.buffer, stage.store}, names), assignment_text(combine_of(stage)),
                            to_string(stage.value, names), ranges(" over ", stage.reduce));
    return text + "}\n";
}

}  // namespace tessera
