#include <algorithm>

#include "graph/builder.h"
#include "graph/copy_nodes.h"
#include "rewrite/edit.h"
#include "rewrite/passes/lowering_passes.h"

namespace tessera {
namespace {

constexpr size_t kMaxNodes = 20000;  // of all steps together

struct Unrolling {
    Graph& graph;
    Node& scan;
    const Graph& body;
    size_t states = 0, sequences = 0;
    int64_t length = 0;
    std::vector<int64_t> axes = {};  // of the sequences
    std::vector<bool> reversed = {};
};

std::vector<int64_t> list_or(const OpView& op, const char* name, size_t count) {
    return op.ints_or(name, std::vector<int64_t>(count, 0));
}

// A scan over a number of steps that is known, of a body without control flow.
std::optional<Unrolling> unrollable(Graph& graph, Node& node) {
    OpView op = node.view();
    if (node.op().name != "scan" || op.integer("batched")) return std::nullopt;
    Unrolling u{graph, node, op.graph("body")};
    u.sequences = size_t(op.integer("num_scan_inputs"));
    if (u.sequences < 1 || u.sequences > node.inputs().size()) return std::nullopt;
    u.states = node.inputs().size() - u.sequences;
    if (u.body.inputs().size() != node.inputs().size() || u.body.outputs().size() < u.states) return std::nullopt;
    u.axes = list_or(op, "scan_input_axes", u.sequences);
    for (int64_t d : list_or(op, "scan_input_directions", u.sequences)) u.reversed.push_back(d != 0);
    if (u.axes.size() != u.sequences || u.reversed.size() != u.sequences) return std::nullopt;
    for (size_t i = 0; i < u.sequences; ++i) {
        const Type& type = node.input(u.states + i)->type();
        if (!type.is_tensor() || !type.tensor().shape.ranked()) return std::nullopt;
        if (u.axes[i] < 0) u.axes[i] += type.tensor().rank();
        auto steps = type.tensor().shape[u.axes[i]].as_int();
        if (!steps || *steps < 1 || (i > 0 && *steps != u.length)) return std::nullopt;
        u.length = *steps;
    }
    if (size_t(u.length) * (u.body.nodes().size() + 1) > kMaxNodes) return std::nullopt;
    for (const auto& inner : u.body.nodes())
        if (has_nested(*inner) || inner->is(Trait::Random)) return std::nullopt;
    return u;
}

Result<std::vector<Value*>> all_steps(const Unrolling& u) {
    Builder build(u.graph, u.scan.where());
    OpView op = u.scan.view();
    const size_t collected = u.body.outputs().size() - u.states;
    std::vector<int64_t> axes = list_or(op, "scan_output_axes", collected);
    std::vector<int64_t> directions = list_or(op, "scan_output_directions", collected);
    std::vector<Value*> states(u.scan.inputs().begin(), u.scan.inputs().begin() + std::ptrdiff_t(u.states));
    std::vector<std::vector<Value*>> parts(collected);
    for (int64_t step = 0; step < u.length; ++step) {
        std::vector<Value*> inputs = states;
        for (size_t i = 0; i < u.sequences; ++i) {
            Value* at = build.scalar(double(u.reversed[i] ? u.length - 1 - step : step), DType::i64);
            inputs.push_back(build.op("gather", {u.scan.input(u.states + i), at}, {{"axis", Attr(u.axes[i])}}));
        }
        TRY(build.status());
        std::vector<Value*> results = TRY(copy_nodes(u.body, u.graph, inputs));
        states.assign(results.begin(), results.begin() + std::ptrdiff_t(u.states));
        for (size_t i = 0; i < collected; ++i) parts[i].push_back(build.unsqueeze(results[u.states + i], {axes[i]}));
    }
    std::vector<Value*> out = states;
    for (size_t i = 0; i < collected; ++i) {
        if (directions[i]) std::reverse(parts[i].begin(), parts[i].end());
        out.push_back(build.concat(parts[i], axes[i]));
    }
    return build.finish(std::move(out));
}

Changed unroll(Graph& graph, Node& node, int64_t most, PassContext& context) {
    const size_t before = graph.nodes().size();
    auto u = unrollable(graph, node);
    if (!u || u->length > most) return false;
    auto results = all_steps(*u);
    if (!results.ok() || results->size() < node.output_count()) return false;
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty() && !((*results)[i] && (*results)[i]->type() == node.output(i)->type()))
            return false;
    Rewriting rewriting(context, "unroll", {&node});
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty()) graph.replace_uses(node.output(i), (*results)[i]);
    note_origin(graph, node, before, context);
    rewriting.done();
    graph.disconnect(node);
    return true;
}

}  // namespace

Result<Changed> unroll_scans(Graph& graph, int64_t most, PassContext& context) {
    Changed changed = false;
    const size_t before = graph.nodes().size();
    for (size_t i = 0; i < before; ++i) {
        Node& node = *graph.nodes()[i];
        if (any_used(node) && has_nested(node)) changed |= unroll(graph, node, most, context);
    }
    if (graph.nodes().size() != before) {
        graph.erase_unused();
        graph.sort();
    }
    if (changed) TRY(fold_what_was_made(graph, context));
    return changed;
}

}  // namespace tessera
