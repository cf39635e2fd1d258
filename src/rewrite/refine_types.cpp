#include "graph/infer.h"
#include "graph/refine.h"
#include "rewrite/edit.h"
#include "rewrite/passes.h"

namespace tessera {
namespace {

bool same_contents(const std::optional<std::vector<Expr>>& a, const std::optional<std::vector<Expr>>& b) {
    return a.has_value() == b.has_value() && (!a || *a == *b);
}

Changed infer_graph(Graph& graph) {
    Changed changed = false;
    for (const auto& node : graph.nodes()) {
        for (const auto& [_, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) changed |= infer_graph(**nested);
        OpView view = node->view();
        auto types = infer_types(view);
        if (!types.ok()) continue;  // it was possible before, so this is a fault that only a run would find
        types->resize(node->output_count());
        for (size_t i = 0; i < types->size(); ++i) {
            Value& v = *node->output(i);
            // What was declared stays where inference can only give a symbol of its own.
            auto type = refine((*types)[i], v.type(), v.name());
            if (!type) type = v.type();
            changed |= !(*type == v.type());
            (*types)[i] = std::move(*type);
            v.set_type((*types)[i]);
        }
        view.with_outputs(*types);
        for (size_t i = 0; i < types->size(); ++i) {
            Value& v = *node->output(i);
            if (!(*types)[i].is_tensor() || !(*types)[i].tensor().shape.ranked()) continue;
            auto contents = infer_contents(view, i);
            if (same_contents(contents, v.contents())) continue;
            v.set_contents(std::move(contents));
            changed = true;
        }
    }
    return changed;
}

}  // namespace

Result<Changed> refine_types(Graph& graph, PassContext&) { return infer_graph(graph); }

}  // namespace tessera
