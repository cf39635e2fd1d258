#include "shard/access.h"

#include <algorithm>
#include <set>

#include "graph/evaluate/evaluate.h"

namespace tessera::shard {
namespace {

constexpr uint32_t kDeepest = 120;  // bodies beyond are computed whole: a part of one must be text that can be read

// Reductions that are computed for every element: outside of other reductions, of branches and of indices.
void find_reductions(const Expr& e, std::vector<Expr>& found) {
    if (e.is(ExprKind::Reduce)) {
        if (std::find(found.begin(), found.end(), e) == found.end()) found.push_back(e);
        return;
    }
    if (e.is(ExprKind::Load)) return;
    const size_t always = e.is(ExprKind::Select) || e.is(ExprKind::And) || e.is(ExprKind::Or) ? 1 : e.args().size();
    for (size_t i = 0; i < always; ++i) find_reductions(e.arg(i), found);
}

bool mentions(const Expr& e, const std::string& variable) {
    bool found = false;
    visit(e, [&](const Expr& x) {
        found |= x.is(ExprKind::Var) && x.node().name == variable;
        for (const ReduceAxis& axis : x.node().axes) found |= axis.var.node().name == variable;
    });
    return found;
}

// The body with reductions that share names of axes, as two sums over the same range do, under names of their own.
Expr with_own_axes(Expr body) {
    std::vector<Expr> reductions;
    find_reductions(body, reductions);
    std::set<std::string> taken;
    for (const Expr& reduction : reductions) {
        std::vector<ReduceAxis> axes = reduction.node().axes;
        Bindings renamed;
        for (ReduceAxis& axis : axes) {
            const std::string name = axis.var.node().name;
            if (taken.insert(name).second) continue;
            axis.var = index_var(fmt::format("{}_{}", name, taken.size()), axis.extent.as_int());
            taken.insert(axis.var.node().name);
            renamed.insert_or_assign(name, axis.var);
        }
        if (renamed.empty()) continue;
        const Expr own = reduce(reduction.node().reduce_op, axes, substitute(reduction.arg(0), renamed));
        body = rewrite(body, [&](const Expr& e) { return e == reduction ? own : e; });
    }
    return body;
}

// Those of a reduction's axes that can be divided: of constant extent, and of no other part of the body.
std::vector<Variable> divisible_axes(const Expr& reduction, const Expr& body) {
    const Expr rest = rewrite(body, [&](const Expr& e) { return e == reduction ? constant(0, e.dtype()) : e; });
    std::vector<Variable> axes;
    for (const ReduceAxis& axis : reduction.node().axes) {
        const auto extent = axis.extent.as_int();
        const std::string& name = axis.var.node().name;
        bool elsewhere = mentions(rest, name);
        for (const ReduceAxis& other : reduction.node().axes) elsewhere |= mentions(other.extent, name);
        if (extent && !elsewhere) axes.push_back({axis.var, *extent, true});
    }
    return axes;
}

std::string why_whole(const Node& node) {
    if (node.is(Trait::Random)) return "it draws random numbers";
    const OpDef& op = node.op();
    if (!op.body || (op.body_applies && !op.body_applies(node.view()))) return "it has no body";
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty() && !divisible_sizes(*node.output(i)))
            return "a size or an element type of its result is not known";
    for (const Value* v : node.inputs())
        if (v && !divisible_sizes(*v)) return "a size or an element type of its operands is not known";
    return {};
}

// Of a node with a body; nothing where the body asks for contents that only a run gives.
std::optional<Unit> unit_by_body(const Node& node, size_t output) {
    OpView view = node.view();
    view.for_output(output);
    Unit unit{.node = &node, .output = output};
    const Indices at = output_indices(node.output(output)->type().tensor().shape);
    std::optional<Expr> body;
    if (view.asks_unknown([&] { body = node.op().body(view, at); }) || !body) return {};
    if (body->node().depth > kDeepest) return {};
    body = with_own_axes(*body);
    const Sizes sizes = *divisible_sizes(*node.output(output));
    for (size_t d = 0; d < sizes.size(); ++d) unit.variables.push_back({at[int64_t(d)], sizes[d], false});
    std::vector<Expr> reductions;
    find_reductions(*body, reductions);
    for (const Expr& r : reductions) {
        const auto axes = divisible_axes(r, *body);
        if (axes.empty()) continue;
        unit.reductions.push_back(r);
        unit.variables.insert(unit.variables.end(), axes.begin(), axes.end());
    }
    std::set<std::string> known;
    for (const Variable& v : unit.variables) known.insert(v.var.node().name);
    for (const std::string& name : free_symbols(*body))
        if (!known.contains(name)) return {};  // a size that only a run gives
    unit.body = *body;
    unit.reads = reads_of(*body);
    return unit;
}

}  // namespace

std::optional<Sizes> divisible_sizes(const Value& value) {
    if (!value.type().is_tensor()) return {};
    const TensorType& t = value.type().tensor();
    if (!t.shape.ranked() || !kBodyTypes.has(t.dtype)) return {};
    return t.shape.sizes();
}

int64_t bytes_of(const Value& value) {
    const Sizes sizes = *divisible_sizes(value);
    auto bytes = static_cast<int64_t>(dtype_bytes(value.type().tensor().dtype));
    for (int64_t n : sizes) bytes *= n;
    return bytes;
}

std::vector<Unit> units_of(const Graph& graph) {
    std::vector<Unit> units;
    for (const auto& node : graph.nodes()) {
        std::vector<Unit> own;
        std::string why = why_whole(*node);
        for (size_t i = 0; i < node->output_count() && why.empty(); ++i) {
            if (node->output(i)->uses().empty()) continue;
            if (auto unit = unit_by_body(*node, i))
                own.push_back(std::move(*unit));
            else
                why = "its body depends on the contents of an operand";
        }
        if (!why.empty()) own = {Unit{.node = node.get(), .why_whole = why}};
        std::move(own.begin(), own.end(), std::back_inserter(units));
    }
    return units;
}

Ranges whole_ranges(const Unit& unit) {
    Ranges ranges;
    for (const Variable& v : unit.variables) ranges.push_back({0, v.extent});
    return ranges;
}

std::vector<Read> reads_of(const Expr& body) {
    std::vector<Read> reads;
    visit(body, [&](const Expr& e) {
        if (e.is(ExprKind::Load)) reads.push_back({static_cast<size_t>(e.node().slot), e.args()});
    });
    return reads;
}

Expr within(const Expr& body, const std::vector<Variable>& variables, const Ranges& ranges) {
    Bindings from_low;
    std::map<std::string, Interval> divided;  // axes of reductions
    for (size_t i = 0; i < variables.size(); ++i) {
        const std::string& name = variables[i].var.node().name;
        if (variables[i].reduced) divided.emplace(name, ranges[i]);
        from_low.insert_or_assign(name, index_var(name, ranges[i].length()) + ranges[i].low);
    }
    const Expr moved = rewrite(body, [&](const Expr& e) {
        if (!e.is(ExprKind::Reduce)) return e;
        std::vector<ReduceAxis> axes;
        Bindings inner;
        for (const ReduceAxis& axis : e.node().axes) {
            const std::string& name = axis.var.node().name;
            auto found = divided.find(name);
            if (found == divided.end()) {
                axes.push_back(axis);
                continue;
            }
            axes.push_back({index_var(name, found->second.length()), Expr(found->second.length())});
            inner.insert_or_assign(name, from_low.at(name));
        }
        return inner.empty() ? e : reduce(e.node().reduce_op, std::move(axes), substitute(e.arg(0), inner));
    });
    for (const auto& [name, range] : divided) from_low.erase(name);
    return substitute(moved, from_low);
}

Box needed(const Read& read, const Sizes& input, const std::vector<Variable>& variables, const Ranges& ranges) {
    bool empty = false;
    for (const Interval& range : ranges) empty |= range.length() == 0;
    Bindings bindings;  // made where an index is more than a variable
    auto bounds_of = [&](const Expr& index) -> Bounds {
        if (const auto value = index.as_int()) return {*value, *value};
        if (index.is(ExprKind::Var))
            for (size_t i = 0; i < variables.size(); ++i)
                if (variables[i].var == index) return {ranges[i].low, ranges[i].high - 1};
        if (bindings.empty())
            for (size_t i = 0; i < variables.size(); ++i) {
                const std::string& name = variables[i].var.node().name;
                bindings.insert_or_assign(name, index_var(name, ranges[i].length()) + ranges[i].low);
            }
        return bounds(substitute(index, bindings));
    };
    Box box;
    for (size_t d = 0; d < input.size(); ++d) {
        if (empty || input[d] == 0) {
            box.push_back({0, 0});
            continue;
        }
        const Bounds b = bounds_of(read.indices[d]);
        const int64_t low = std::clamp<int64_t>(b.low.value_or(0), 0, input[d] - 1);
        const int64_t high = std::clamp<int64_t>(b.high.value_or(input[d] - 1), low, input[d] - 1);
        box.push_back({low, high + 1});  // at least one element, which a guard may keep from being read
    }
    return box;
}

}  // namespace tessera::shard
