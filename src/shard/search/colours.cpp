#include "shard/search/colours.h"

#include "base/hash.h"

namespace tessera::shard {
namespace {

constexpr int kRounds = 8;  // how far around a value its place in the graph is looked at

uint64_t hash_of(const std::string& text) { return hash_bytes(text.data(), text.size()); }

}  // namespace

Colours::Colours(const Graph& graph) {
    auto start = [&](const Value* v) { colours_[v] = hash_of(tessera::to_string(v->type())); };
    for (const auto& v : graph.inputs()) start(v.get());
    for (const auto& v : graph.constants()) start(v.get());
    for (const auto& n : graph.nodes())
        for (size_t i = 0; i < n->output_count(); ++i) start(n->output(i));
    for (int round = 0; round < kRounds; ++round) {
        std::unordered_map<const Value*, uint64_t> next;
        for (const auto& [v, colour] : colours_) next[v] = around(v, colour);
        colours_ = std::move(next);
    }
}

uint64_t Colours::of_node(const Node& n) const {
    uint64_t h = hash_of(n.op().name);
    for (const Value* in : n.inputs()) h = mix(h, in ? colours_.at(in) : 0);
    return h;
}

uint64_t Colours::around(const Value* v, uint64_t colour) const {
    if (v->node()) colour = mix(mix(colour, of_node(*v->node())), v->index());
    uint64_t users = 0;  // in any order
    for (const Use& use : v->uses())
        users += use.node ? mix(mix(of_node(*use.node), use.index), colours_.at(use.node->output())) : 1;
    return mix(colour, users);
}

}  // namespace tessera::shard
