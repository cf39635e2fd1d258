// What was chosen, as a graph of its own: a copy of the working graph in which every use goes to what was chosen for
// its class, also in the graphs of control flow, and nothing else is left.
#include <unordered_set>

#include "base/check.h"
#include "search/extract.h"

namespace tessera {
namespace {

// From the values of a graph to those of its copy.
std::unordered_map<const Value*, Value*> pair_up(const Graph& from, const Graph& to) {
    std::unordered_map<const Value*, Value*> now;
    for (size_t i = 0; i < from.inputs().size(); ++i) now[from.inputs()[i].get()] = to.inputs()[i].get();
    for (size_t i = 0; i < from.constants().size(); ++i) now[from.constants()[i].get()] = to.constants()[i].get();
    CHECK(from.nodes().size() == to.nodes().size(), "a copy has {} nodes", to.nodes().size());
    for (size_t i = 0; i < from.nodes().size(); ++i)
        for (size_t k = 0; k < from.nodes()[i]->output_count(); ++k)
            now[from.nodes()[i]->output(k)] = to.nodes()[i]->output(k);
    return now;
}

void move_use(const Use& use, Value* to) {
    if (use.node)
        use.graph->set_input(*use.node, use.index, to);
    else
        use.graph->set_output(use.index, to);
}

// A copy, also where definitions do not come before their uses.
std::unique_ptr<Graph> copy_of(const Graph& from, std::unordered_map<const Value*, Value*>& now) {
    std::unique_ptr<Graph> graph = from.clone();
    now = pair_up(from, *graph);
    for (const auto& [old, copy] : now) {
        const std::vector<Use> uses = old->uses();
        for (const Use& use : uses)
            if (&use.graph->outermost() == graph.get()) move_use(use, copy);
    }
    return graph;
}

}  // namespace

std::unique_ptr<Graph> Extractor::build(const Extraction& extraction) const {
    const Graph& from = egraph_.graph();
    std::unordered_map<const Value*, Value*> now;
    std::unique_ptr<Graph> graph = copy_of(from, now);
    std::unordered_map<const Value*, Value*> chosen;  // of the copy, by what stands for the class
    std::unordered_set<const Node*> kept;
    for (size_t c = 0; c < extraction.chosen.size(); ++c) {
        if (!extraction.chosen[c]) continue;
        Value* value = now.at(extraction.chosen[c]);
        chosen[now.at(egraph_.representative(ClassId(c)))] = value;
        if (value->node()) kept.insert(value->node());
    }
    for (const auto& node : graph->nodes())
        for (size_t i = node->inputs().size(); i-- > 0;)
            if (!kept.contains(node.get())) graph->set_input(*node, i, nullptr);
    for (const auto& [value, wanted] : chosen) {
        const std::vector<Use> uses = value->uses();
        for (const Use& use : uses)
            if (value != wanted) move_use(use, wanted);
    }
    graph->erase_unused();
    graph->sort();
    return graph;
}

}  // namespace tessera
