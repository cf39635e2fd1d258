#include <algorithm>

#include "graph/builder.h"
#include "rewrite/edit.h"
#include "rewrite/passes/lowering_passes.h"

namespace tessera {
namespace {

int64_t axis_of(const Node& concat) { return concat.op().joined_axis(concat.view()); }

}  // namespace

Result<Changed> nest_concats(Graph& graph, PassContext& context) {
    struct Concat {
        Node* node;
        std::vector<Value*> all;  // as it was
    };
    std::vector<Concat> concats;
    for (const auto& node : graph.nodes())
        if (node->op().joined_axis && !node->output()->uses().empty()) concats.push_back({node.get(), node->inputs()});
    Changed changed = false;
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
        Rewriting rewriting(context, "nest", {&old});
        if (!made.ok() || !put_in_place(*old.output(), *(*made)->output(), true)) continue;
        rewriting.done({*made});
        graph.disconnect(old);
        large.node = *made;
        changed = true;
    }
    if (!changed) return false;
    graph.sort();
    graph.erase_unused();
    return true;
}

}  // namespace tessera
