#include "kernel/ir/check_expr.h"

#include <fmt/format.h>

#include <set>

#include "kernel/ir/text.h"

namespace tessera {
namespace {

std::optional<std::string> check_variable(const ExprNode& var, const VariableBounds& variables) {
    auto found = variables.find(var.name);
    if (found == variables.end())
        return fmt::format("{} is neither a size nor the variable of a loop around it", name_text(var.name));
    const Bounds& known = found->second;
    bool low = var.low && (!known.low || *var.low > *known.low);
    bool high = var.high && (!known.high || *var.high < *known.high);
    if (!low && !high) return std::nullopt;
    return fmt::format("{} claims to be {} {}, which does not follow from its loop", name_text(var.name),
                       low ? "at least" : "at most", low ? *var.low : *var.high);
}

std::optional<std::string> check_slot(int slot, size_t indices, const std::vector<Buffer>& buffers,
                                      const std::function<bool(int)>& readable) {
    if (slot < 0 || static_cast<size_t>(slot) >= buffers.size()) return fmt::format("there is no buffer {}", slot);
    const Buffer& b = buffers[static_cast<size_t>(slot)];
    if (!readable(slot)) return fmt::format("{} is not allocated here", name_text(b.name));
    if (indices != b.shape.size())
        return fmt::format("{} has {} dimensions and gets {} indices", name_text(b.name), b.shape.size(), indices);
    return std::nullopt;
}

}  // namespace

Bounds loop_bounds(const Expr& extent) {
    Bounds b = bounds(extent);
    // An empty range never runs, so that nothing needs to hold in it.
    if (b.high) b.high = std::max<int64_t>(*b.high - 1, 0);
    return {0, b.high};
}

std::optional<std::string> check_expr(const Expr& e, const std::vector<Buffer>& buffers,
                                      const VariableBounds& variables, const std::function<bool(int)>& readable) {
    std::optional<std::string> problem;
    visit(e, [&](const Expr& x) {
        const ExprNode& n = x.node();
        if (n.kind == ExprKind::Reduce) problem = "a reduction inside an expression";
        if (problem) return;
        if (!kBodyTypes.has(n.dtype)) problem = fmt::format("a value of type {}", dtype_name(n.dtype));
        if (n.kind == ExprKind::Var) problem = check_variable(n, variables);
        if (n.kind != ExprKind::Load || problem) return;
        problem = check_slot(n.slot, n.args.size(), buffers, readable);
        if (problem) return;
        const Buffer& b = buffers[static_cast<size_t>(n.slot)];
        if (n.dtype != b.dtype)
            problem = fmt::format("a load of {} from {}, which holds {}", dtype_name(n.dtype), name_text(b.name),
                                  dtype_name(b.dtype));
        for (const Expr& index : n.args)
            if (index.dtype() != DType::i64) problem = fmt::format("an index of type {}", dtype_name(index.dtype()));
    });
    return problem;
}

std::optional<std::string> check_access(const Access& access, const std::vector<Buffer>& buffers,
                                        const VariableBounds& variables, const std::function<bool(int)>& readable) {
    if (auto problem = check_slot(access.buffer, access.indices.size(), buffers, readable)) return problem;
    for (const Expr& index : access.indices) {
        if (index.dtype() != DType::i64) return fmt::format("an index of type {}", dtype_name(index.dtype()));
        if (auto problem = check_expr(index, buffers, variables, readable)) return problem;
    }
    return std::nullopt;
}

std::optional<std::string> check_sizes(const Buffer& b, const VariableBounds& variables) {
    if (!b.strides.empty() && b.strides.size() != b.shape.size())
        return fmt::format("{} has {} dimensions and {} strides", name_text(b.name), b.shape.size(), b.strides.size());
    for (const std::vector<Expr>* list : {&b.shape, &b.strides})
        for (const Expr& e : *list) {
            if (e.dtype() != DType::i64) return fmt::format("a size of {} is no i64", name_text(b.name));
            if (e.node().reads) return fmt::format("a size of {} is read from a buffer", name_text(b.name));
            if (auto problem = check_expr(e, {}, variables, [](int) { return false; }))
                return fmt::format("a size of {}: {}", name_text(b.name), *problem);
        }
    return std::nullopt;
}

std::optional<std::string> check_buffers(const std::vector<Buffer>& buffers, size_t params,
                                         const std::vector<std::string>& symbols) {
    if (params > buffers.size()) return fmt::format("{} parameters, but {} buffers", params, buffers.size());
    VariableBounds sizes;
    for (const std::string& s : symbols) {
        if (s.empty()) return "a size without a name";
        if (!sizes.emplace(s, symbol_bounds()).second) return fmt::format("two sizes are called {}", name_text(s));
    }
    std::set<std::string> names;
    for (size_t i = 0; i < buffers.size(); ++i) {
        const Buffer& b = buffers[i];
        if (b.name.empty()) return fmt::format("buffer {} has no name", i);
        if (!names.insert(b.name).second) return fmt::format("two buffers are called {}", name_text(b.name));
        if (!kBodyTypes.has(b.dtype)) return fmt::format("{} holds {}", name_text(b.name), dtype_name(b.dtype));
        if (i >= params) continue;
        if (b.scope != Scope::Global)
            return fmt::format("the parameter {} is {}, not global", name_text(b.name), scope_name(b.scope));
        if (auto problem = check_sizes(b, sizes)) return problem;
    }
    return std::nullopt;
}

}  // namespace tessera
