#include "graph/infer.h"
#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

// Defaults that the op names itself.
void drop_defaults(const Node& node, AttrMap& attrs) {
    std::erase_if(attrs, [&](const auto& a) {
        const AttrDef* def = node.op().attr(a.first);
        return def && !def->is_required && def->fallback && *def->fallback == a.second;
    });
}

// The new attributes, unless inference finds that they mean something else.
Changed set_attrs(Node& node, AttrMap attrs, PassContext& context) {
    if (attrs == node.attrs()) return false;
    Rewriting rewriting(context, "rewrite attributes", {&node});
    std::swap(node.attrs(), attrs);
    auto types = infer_types(node.view());
    bool kept = types.ok() && types->size() >= node.output_count();
    for (size_t i = 0; kept && i < node.output_count(); ++i) {
        const Type &was = node.output(i)->type(), &is = (*types)[i];
        kept = was.kind() == is.kind() && (!was.is_tensor() || was.tensor().dtype == is.tensor().dtype);
    }
    if (!kept) {
        std::swap(node.attrs(), attrs);
        return false;
    }
    rewriting.done({&node});
    return true;
}

// A node that gives what it takes, as dropout outside training, and is asked for nothing else.
Changed pass_over(Graph& graph, Node& node, PassContext& context) {
    if (!node.op().gives_input || node.output()->uses().empty()) return false;
    for (size_t i = 1; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty()) return false;
    if (!node.op().gives_input(node.view())) return false;
    Rewriting rewriting(context, "gives what it takes", {&node});
    graph.replace_uses(node.output(), node.input(0));
    rewriting.done({}, {{node.output()->name(), node.input(0)->name()}});
    return true;
}

}  // namespace

Result<Changed> canonicalise(Graph& graph, PassContext& context) {
    Changed changed = false, dropped = false;
    for (Graph* g : all_graphs(graph))
        for (const auto& node : g->nodes()) {
            dropped |= pass_over(*g, *node, context);
            AttrMap attrs = node->attrs();
            if (node->op().canonical) node->op().canonical(node->view(), attrs);
            drop_defaults(*node, attrs);
            changed |= set_attrs(*node, std::move(attrs), context);
        }
    if (dropped) sweep(graph);
    return changed || dropped;
}

}  // namespace tessera
