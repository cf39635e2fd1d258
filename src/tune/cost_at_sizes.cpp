#include "tune/cost_at_sizes.h"

#include <algorithm>

#include "rewrite/edit.h"
#include "rewrite/fix_sizes.h"
#include "tune/standalone.h"

namespace tessera {
namespace {

bool is_open(const Value* v) {
    return v && v->type().is_tensor() && v->type().tensor().shape.ranked() && !v->type().tensor().shape.sizes();
}

}  // namespace

const Node& CostAtSizes::fixed(const Node& node) {
    bool open = std::any_of(node.inputs().begin(), node.inputs().end(), is_open);
    for (size_t i = 0; i < node.output_count(); ++i) open |= is_open(node.output(i));
    if (!open || has_nested(node)) return node;
    auto [at, fresh] = made_.try_emplace(cost_key(node));
    if (fresh) at->second = standalone(node, false, sizes_);
    return at->second ? *at->second->nodes().front() : node;
}

void CostAtSizes::expect(const std::vector<std::vector<const Node*>>& classes) {
    std::vector<std::vector<const Node*>> all;
    for (const auto& nodes : classes) {
        all.emplace_back();
        for (const Node* n : nodes) all.back().push_back(&fixed(*n));
    }
    cost_.expect(all);
}

std::optional<double> CostAtSizes::groups(const Graph& graph) {
    std::unique_ptr<Graph> copy = graph.clone();
    fix_sizes(*copy, sizes_);
    return cost_.groups(*copy);
}

}  // namespace tessera
