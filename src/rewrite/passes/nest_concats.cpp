#include <algorithm>

#include "graph/builder.h"
#include "rewrite/edit.h"
#include "rewrite/passes/expand_composites.h"

namespace tessera {
namespace {

int64_t axis_of(const Node& node) {
    int64_t axis = std::get<int64_t>(node.attrs().at("axis"));
    const Type& type = node.output()->type();
    return axis < 0 && type.is_tensor() && type.tensor().shape.ranked() ? axis + type.tensor().rank() : axis;
}

}  // namespace

void nest_concats(Graph& graph) {
    struct Concat {
        Node* node;
        std::vector<Value*> all;  // as it was
    };
    std::vector<Concat> concats;
    for (const auto& node : graph.nodes())
        if (node->op().name == "concat" && !node->output()->uses().empty())
            concats.push_back({node.get(), node->inputs()});
    bool changed = false;
    for (size_t b = 1; b < concats.size(); ++b) {
        Concat& large = concats[b];
        const Concat* best = nullptr;
        for (size_t a = 0; a < b; ++a) {
            const std::vector<Value*>& some = concats[a].all;
            if (some.size() < 2 || some.size() >= large.all.size() || (best && some.size() <= best->all.size()))
                continue;
            if (axis_of(*concats[a].node) != axis_of(*large.node)) continue;
            if (std::equal(some.begin(), some.end(), large.all.begin())) best = &concats[a];
        }
        if (!best) continue;
        std::vector<Value*> inputs = {best->node->output()};
        inputs.insert(inputs.end(), large.all.begin() + std::ptrdiff_t(best->all.size()), large.all.end());
        Node& old = *large.node;
        auto made = graph.add({.op = &old.op(), .inputs = inputs, .attrs = old.attrs(), .name = old.name()});
        if (!made.ok() || !put_in_place(*old.output(), *(*made)->output(), true)) continue;
        graph.disconnect(old);
        large.node = *made;
        changed = true;
    }
    if (!changed) return;
    graph.sort();
    graph.erase_unused();
}

}  // namespace tessera
