#include <algorithm>

#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

bool used(const Node& node) {
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty()) return true;
    return false;
}

void drop_nodes(Graph& graph, PassContext& context) {
    for (size_t i = graph.nodes().size(); i-- > 0;) {
        Node& node = *graph.nodes()[i];
        if (used(node)) continue;
        Rewriting(context, "unused", {&node}).done();
        graph.disconnect(node);  // so that what only it used is unused too
    }
    for (const auto& v : graph.constants())
        if (v->uses().empty()) Rewriting(context, "unused constant", {}).done({}, {{v->name(), ""}});
    graph.erase_unused();
}

// Whether output `i` may be left out where nobody uses it.
bool optional_output(const OpDef& op, size_t i) {
    if (i < op.outputs.size()) return op.outputs[i].optional;
    return false;
}

// The same node without the optional outputs that nobody uses; false where it has none.
Result<Changed> drop_outputs(Graph& graph, Node& node, PassContext& context) {
    size_t count = node.output_count();
    std::vector<bool> given;
    bool fewer = false;
    for (size_t i = 0; i < count; ++i) {
        bool needed = !node.output(i)->uses().empty() || !optional_output(node.op(), i);
        given.push_back(needed && node.output_given(i));
        fewer |= node.output_given(i) && !needed;
    }
    if (!fewer) return false;
    while (count > 0 && !given[count - 1]) --count;
    given.resize(count);
    NodeSpec spec{.op = &node.op(),
                  .inputs = node.inputs(),
                  .attrs = node.attrs(),
                  .outputs = count,
                  .name = node.name(),
                  .given = given,
                  .metadata = node.metadata()};
    auto made = graph.add(std::move(spec));
    if (!made.ok() || (*made)->output_count() != count) return false;  // it needs them all
    Rewriting rewriting(context, "unused output", {&node});
    bool done = true;
    for (size_t i = 0; i < count; ++i) done &= put_in_place(*node.output(i), *(*made)->output(i), true);
    if (!done) return false;
    rewriting.done({*made});
    graph.disconnect(node);
    return true;
}

}  // namespace

Result<Changed> drop_unused(Graph& graph, PassContext& context) {
    size_t before = context.rewrites;
    std::vector<Graph*> graphs = all_graphs(graph);
    for (auto g = graphs.rbegin(); g != graphs.rend(); ++g) {
        drop_nodes(**g, context);
        size_t count = (*g)->nodes().size();
        for (size_t i = 0; i < count; ++i) {
            Node& node = *(*g)->nodes()[i];
            if (node.output_count() > 1 && !has_nested(node)) TRY(drop_outputs(**g, node, context));
        }
        if ((*g)->nodes().size() == count) continue;
        (*g)->sort();
        (*g)->erase_unused();
    }
    return context.rewrites != before;
}

}  // namespace tessera
