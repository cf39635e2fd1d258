#include "rewrite/passes/expand_composites.h"

#include "graph/expand_node.h"
#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

bool by_body(const Node& node) {
    const OpDef& op = node.op();
    if (!op.body) return false;
    return !op.body_applies || op.body_applies(node.view());
}

bool ranked_inputs(const Node& node) {
    for (const Value* v : node.inputs())
        if (v && !(v->type().is_tensor() && v->type().tensor().shape.ranked())) return false;
    return true;
}

// Its outputs made of smaller ops, appended to the graph; nothing where it stays as it is.
std::optional<std::vector<Value*>> expansion(Graph& graph, const Node& node) {
    Builder build(graph, node.where());
    auto results = expand_node(node, build, true);
    if (!results || results->size() < node.output_count()) return std::nullopt;
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty() && !(*results)[i]) return std::nullopt;
    return results;
}

// The nodes from `before` on are parts of `node`, or of what it is a part of.
void note_origin(const Graph& graph, const Node& node, size_t before, Expanded& all) {
    Expanded::Origin origin{node.op().name, node.name()};
    if (auto outer = all.origins.find(&node); outer != all.origins.end()) origin = outer->second;
    for (size_t i = before; i < graph.nodes().size(); ++i) all.origins.emplace(graph.nodes()[i].get(), origin);
}

bool expand(Graph& graph, Node& node, Expanded& all) {
    const size_t before = graph.nodes().size();
    auto results = expansion(graph, node);
    bool kept = !results;
    for (size_t i = 0; i < node.output_count() && !kept; ++i)
        if (!node.output(i)->uses().empty()) kept = !put_in_place(*node.output(i), *(*results)[i], false);
    if (kept) return false;
    note_origin(graph, node, before, all);
    graph.disconnect(node);
    return true;
}

bool unroll(Graph& graph, Node& node, Expanded& all) {
    const size_t before = graph.nodes().size();
    if (!unroll_scan(graph, node)) return false;
    note_origin(graph, node, before, all);
    return true;
}

}  // namespace

Result<Expanded> expand_composites(const Graph& graph) {
    Expanded all{graph.clone()};
    const std::shared_ptr<Graph>& copy = all.graph;
    bool changed = false;
    for (size_t i = 0; i < copy->nodes().size(); ++i) {  // also what is made on the way
        Node& node = *copy->nodes()[i];
        bool used = false;
        for (size_t k = 0; k < node.output_count(); ++k) used |= !node.output(k)->uses().empty();
        if (used && has_nested(node)) changed |= unroll(*copy, node, all);
        if (!used || !node.op().expand || !ranked_inputs(node) || by_body(node)) continue;
        changed |= expand(*copy, node, all);
    }
    copy->erase_unused();
    copy->sort();
    if (changed) {
        PassContext context;
        TRY(fold_constants(*copy, context));
    }
    return all;
}

}  // namespace tessera
