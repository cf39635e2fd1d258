#include "graph/expand_node.h"
#include "rewrite/edit.h"
#include "rewrite/passes/lowering_passes.h"

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

Changed expand(Graph& graph, Node& node, PassContext& context) {
    const size_t before = graph.nodes().size();
    Builder build(graph, node.where());
    auto results = expand_node(node, build, true);
    if (!results || results->size() < node.output_count()) return false;
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty() && !(*results)[i]) return false;
    Rewriting rewriting(context, "write out", {&node});
    if (!put_made_in_place(node, *results, context)) return false;
    note_origin(graph, node, before, context);
    Rewriting::Nodes made;
    for (size_t i = before; i < graph.nodes().size(); ++i) made.push_back(graph.nodes()[i].get());
    rewriting.done(made);
    graph.disconnect(node);
    return true;
}

}  // namespace

Result<Changed> expand_composites(Graph& graph, PassContext& context) {
    Changed changed = false;
    const size_t before = graph.nodes().size();
    for (size_t i = 0; i < graph.nodes().size(); ++i) {  // also what is made on the way
        Node& node = *graph.nodes()[i];
        if (!any_used(node) || !node.op().expand || !ranked_inputs(node) || by_body(node)) continue;
        changed |= expand(graph, node, context);
    }
    if (graph.nodes().size() != before) {
        graph.erase_unused();
        graph.sort_canonically();  // whatever the order in which C++ evaluated the operands
    }
    if (changed) TRY(fold_what_was_made(graph, context));
    return changed;
}

}  // namespace tessera
