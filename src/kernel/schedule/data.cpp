// Primitives that copy data on its way, and say how it is laid out.
#include <algorithm>
#include <set>

#include "kernel/schedule/schedule.h"

namespace tessera {
namespace {

std::vector<Expr> vars_of(const std::vector<ReduceAxis>& axes) {
    std::vector<Expr> vars;
    for (const ReduceAxis& axis : axes) vars.push_back(axis.var);
    return vars;
}

std::vector<Expr> extents_of(const std::vector<ReduceAxis>& axes) {
    std::vector<Expr> extents;
    for (const ReduceAxis& axis : axes) extents.push_back(axis.extent);
    return extents;
}

std::string map_text(const IndexMap& map) {
    auto list = [](const std::vector<Expr>& all) {
        std::string text;
        for (const Expr& e : all) text += (text.empty() ? "" : ", ") + to_string(e);
        return text;
    };
    return fmt::format("{} -> {} < {}", list(map.vars), list(map.indices), list(map.shape));
}

// Two elements at one place, among the first few along each axis.
bool collides(const IndexMap& map, const std::vector<Expr>& extents) {
    constexpr int64_t kPoints = 600;
    SymbolValues symbols;
    for (const Expr& e : extents)
        for (const std::string& name : free_symbols(e)) symbols.emplace(name, 7);
    for (const Expr& e : map.indices)
        for (const std::string& name : free_symbols(e)) symbols.emplace(name, 7);
    std::vector<int64_t> sizes;
    for (const Expr& e : extents) sizes.push_back(std::max<int64_t>(1, evaluate_int(e, symbols).value_or(1)));
    auto points = [&] {
        int64_t n = 1;
        for (int64_t s : sizes) n *= s;
        return n;
    };
    for (int64_t& s : sizes) s = std::min<int64_t>(s, 64);
    while (points() > kPoints) {
        auto largest = std::max_element(sizes.begin(), sizes.end());
        *largest -= std::max<int64_t>(1, *largest / 4);
    }
    std::set<std::vector<int64_t>> seen;
    for (int64_t p = 0; p < points(); ++p) {
        int64_t rest = p;
        for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d])
            symbols.insert_or_assign(map.vars[d].node().name, rest % sizes[d]);
        std::vector<int64_t> at;
        for (const Expr& e : map.indices) at.push_back(evaluate_int(e, symbols).value_or(0));
        if (!seen.insert(std::move(at)).second) return true;
    }
    return false;
}

}  // namespace

Result<std::string> Schedule::cache_read(std::string_view given, int buffer, Scope scope) {
    const std::string name(given);  // it may be a name in the stages, which move
    size_t s = TRY(find_stage(name));
    if (buffer < 0 || static_cast<size_t>(buffer) >= compute_.buffers.size() ||
        !reads_buffer(compute_.stages[s], buffer) || compute_.stages[s].buffer == buffer)
        return Error(Code::E0602, "{} does not read buffer {}", name, buffer);
    const Buffer from = compute_.buffers[static_cast<size_t>(buffer)];
    Stage copy;
    copy.name = fresh_stage_name(fmt::format("{}_{}", from.name, scope_name(scope)));
    if (std::optional<size_t> w = is_parameter(buffer) ? std::nullopt : writer(buffer)) {
        copy.axes = compute_.stages[*w].axes;
    } else {
        for (size_t d = 0; d < from.shape.size(); ++d)
            copy.axes.push_back({index_var("d" + std::to_string(d), from.shape[d].as_int()), from.shape[d]});
    }
    copy.store = vars_of(copy.axes);
    copy.value = load(buffer, from.dtype, copy.store);
    copy.buffer = add_buffer(copy.name, from.dtype, extents_of(copy.axes));
    redirect(s, buffer, copy.buffer);
    std::string made = copy.name;
    plans_[insert_stage(s, std::move(copy))].scope = scope;
    record("cache_read", {name, std::to_string(buffer), std::string(scope_name(scope))}, {made});
    return made;
}

Result<std::string> Schedule::cache_write(std::string_view given, Scope scope) {
    const std::string name(given);  // it may be a name in the stages, which move
    size_t s = TRY(find_stage(name));
    Stage out = compute_.stages[s];
    if (out.fold || !plans_[s].running.empty())
        return Error(Code::E0602, "{} is part of an online reduction", name).hint("apply cache_write before online");
    out.name = fresh_stage_name(name + "_out");
    DType dtype = compute_.buffers[static_cast<size_t>(out.buffer)].dtype;
    out.reduce.clear();
    Stage& stage = compute_.stages[s];
    stage.buffer =
        add_buffer(fresh_stage_name(fmt::format("{}_{}", name, scope_name(scope))), dtype, extents_of(stage.axes));
    stage.store = vars_of(stage.axes);
    out.value = load(stage.buffer, dtype, stage.store);
    std::string made = out.name;
    size_t o = insert_stage(s + 1, std::move(out));
    plans_[o].at = plans_[s].at;
    plans_[o].after = plans_[s].after;
    plans_[o].scope = plans_[s].scope;
    plans_[o].layout = std::move(plans_[s].layout);
    plans_[s].layout.reset();
    plans_[s].scope = scope;
    record("cache_write", {name, std::string(scope_name(scope))}, {made});
    return made;
}

Result<std::string> Schedule::reindex(std::string_view given, int operand) {
    const std::string name(given);  // it may be a name in the stages, which move
    size_t s = TRY(find_stage(name));
    const Stage& stage = compute_.stages[s];
    if (!is_product(stage.value))
        return Error(Code::E0602, "{} is not a sum of products of two operands: {}", name, to_string(stage.value));
    if (operand != 0 && operand != 1) return Error(Code::E0602, "a product has operands 0 and 1, not {}", operand);
    Expr value = stage.value.arg(static_cast<size_t>(operand));
    std::vector<std::string> names = free_symbols(value);
    Stage made;
    made.name = fresh_stage_name(fmt::format("{}_{}", name, operand == 0 ? "a" : "b"));
    for (const auto* axes : {&stage.axes, &stage.reduce})
        for (const ReduceAxis& axis : *axes)
            if (std::binary_search(names.begin(), names.end(), axis.var.node().name)) made.axes.push_back(axis);
    made.store = vars_of(made.axes);
    made.value = value;
    made.buffer = add_buffer(made.name, value.dtype(), extents_of(made.axes));
    std::vector<Expr> operands = stage.value.args();
    operands[static_cast<size_t>(operand)] = load(made.buffer, value.dtype(), made.store);
    compute_.stages[s].value = with_args(stage.value, std::move(operands));
    std::string result = made.name;
    insert_stage(s, std::move(made));
    record("reindex", {name, std::to_string(operand)}, {result});
    return result;
}

Status Schedule::transform_layout(std::string_view name, const IndexMap& map) {
    size_t s = TRY(find_stage(name));
    const Stage& stage = compute_.stages[s];
    if (is_parameter(stage.buffer))
        return Error(Code::E0602, "{} writes an output, whose layout is fixed", name)
            .hint("cache_write computes it into an intermediate");
    if (map.vars.size() != stage.axes.size() || map.indices.size() != map.shape.size())
        return Error(Code::E0602, "{} has {} dimensions; the map takes {} indices and gives {}, with {} sizes", name,
                     stage.axes.size(), map.vars.size(), map.indices.size(), map.shape.size());
    if (collides(map, extents_of(stage.axes)))
        return Error(Code::E0602, "the map stores two elements of {} at the same index: {}", name, map_text(map));
    plans_[s].layout = map;
    record("transform_layout", {std::string(name), map_text(map)});
    return {};
}

Status Schedule::storage_align(std::string_view name, int dim, int64_t factor, int64_t offset) {
    size_t s = TRY(find_stage(name));
    if (is_parameter(compute_.stages[s].buffer))
        return Error(Code::E0602, "{} writes an output, whose layout is fixed", name);
    size_t dims = plans_[s].layout ? plans_[s].layout->indices.size() : compute_.stages[s].axes.size();
    if (dim < 0 || static_cast<size_t>(dim) + 1 >= dims)
        return Error(Code::E0602, "{} has no dimension {} other than the innermost", name, dim);
    if (factor < 1 || offset < 0 || offset >= factor)
        return Error(Code::E0602, "expected an offset from 0 to {}, got {}", factor - 1, offset);
    plans_[s].aligned.push_back({dim, factor, offset});
    record("storage_align", {std::string(name), std::to_string(dim), std::to_string(factor), std::to_string(offset)});
    return {};
}

}  // namespace tessera
