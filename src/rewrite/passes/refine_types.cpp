#include "graph/infer.h"
#include "graph/refine.h"
#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

bool same_contents(const std::optional<std::vector<Expr>>& a, const std::optional<std::vector<Expr>>& b) {
    return a.has_value() == b.has_value() && (!a || *a == *b);
}

// Better known, unless that shows that a user would fail.
Changed refine_value(Value& v, const Type& type, const OpView& view) {
    auto contents = v.contents();
    if (type.is_tensor() && type.tensor().shape.ranked()) contents = infer_contents(view, v.index());
    if (type == v.type() && same_contents(contents, v.contents())) return false;
    Type type_before = v.type();
    auto contents_before = v.contents();
    v.set_type(type);
    v.set_contents(std::move(contents));
    if (users_agree(v)) return true;
    v.set_type(std::move(type_before));
    v.set_contents(std::move(contents_before));
    return false;
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
            if (auto type = refine((*types)[i], v.type(), v.name()))
                (*types)[i] = std::move(*type);
            else
                (*types)[i] = v.type();
        }
        view.with_outputs(*types);
        for (size_t i = 0; i < types->size(); ++i) changed |= refine_value(*node->output(i), (*types)[i], view);
    }
    return changed;
}

}  // namespace

Result<Changed> refine_types(Graph& graph, PassContext&) { return infer_graph(graph); }

}  // namespace tessera
