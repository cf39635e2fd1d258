#include <algorithm>

#include "graph/expand_node.h"
#include "graph/names.h"
#include "onnx/operators.h"
#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

bool lacking(const Node& node, const ModelInfo& info) {
    const OnnxForm& form = node.op().onnx;
    if (!node.op().expand) return false;
    if (form.name.empty()) return true;
    return info.opset > 0 && form.domain.empty() && onnx::first_opset("", form.name) > info.opset;
}

Changed write_out_node(Graph& graph, Node& node, PassContext& context) {
    size_t before = graph.nodes().size();
    Builder build(graph, node.where());
    auto results = expand_node(node, build);
    if (!results || results->size() < node.output_count()) return false;
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty() && !((*results)[i] && (*results)[i]->type() == node.output(i)->type()))
            return false;
    Rewriting::Nodes made;
    for (size_t i = before; i < graph.nodes().size(); ++i) made.push_back(graph.nodes()[i].get());
    Rewriting rewriting(context, "write out", {&node});
    for (size_t i = 0; i < node.output_count(); ++i) {
        Value* result = (*results)[i];
        if (!result) continue;
        bool fresh = std::find(made.begin(), made.end(), result->node()) != made.end();
        if (!put_in_place(*node.output(i), *result, fresh && generated_number(result->name()))) return false;
    }
    rewriting.done(made);
    graph.disconnect(node);
    return true;
}

}  // namespace

Result<Changed> write_out(Graph& graph, PassContext& context) {
    Changed changed = false;
    for (Graph* g : all_graphs(graph)) {
        bool tried = false;
        for (size_t i = 0; i < g->nodes().size(); ++i) {  // also what is made on the way
            Node& node = *g->nodes()[i];
            bool used = false;
            for (size_t k = 0; k < node.output_count(); ++k) used |= !node.output(k)->uses().empty();
            if (!used || has_nested(node) || !lacking(node, graph.outermost().info())) continue;
            tried = true;
            changed |= write_out_node(*g, node, context);
        }
        if (!tried) continue;
        g->sort();
        g->erase_unused();
    }
    return changed;
}

}  // namespace tessera
