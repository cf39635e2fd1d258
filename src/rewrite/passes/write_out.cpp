#include <algorithm>

#include "graph/builder.h"
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

// Its outputs, made of smaller ops; nothing where what it stands for hangs on contents that only a run knows.
std::optional<std::vector<Value*>> expansion(Graph& graph, const Node& node) {
    Builder build(graph, node.where());
    OpView view = node.view();
    view.throw_where_unknown();
    try {
        auto results = node.op().expand(view, node.inputs(), build);
        if (!results.ok() || !build.status().ok() || results->size() < node.output_count()) return std::nullopt;
        return std::move(*results);
    } catch (const UnknownContents&) {
        return std::nullopt;
    }
}

Changed expand(Graph& graph, Node& node, PassContext& context) {
    size_t before = graph.nodes().size();
    auto results = expansion(graph, node);
    if (!results) return false;
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
            changed |= expand(*g, node, context);
        }
        if (!tried) continue;
        g->sort();
        g->erase_unused();
    }
    return changed;
}

}  // namespace tessera
