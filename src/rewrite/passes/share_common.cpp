#include <unordered_map>

#include "base/hash.h"
#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

// What there is to share with, here and in the graphs around.
struct Scope {
    const Scope* outer;
    std::unordered_multimap<uint64_t, Node*> nodes = {};
    std::unordered_multimap<uint64_t, Value*> constants = {};

    template <typename Same>
    Node* find_node(uint64_t key, Same same) const {
        for (const Scope* s = this; s; s = s->outer) {
            auto [first, last] = s->nodes.equal_range(key);
            for (auto it = first; it != last; ++it)
                if (same(*it->second)) return it->second;
        }
        return nullptr;
    }
    Value* find_constant(uint64_t key, const Tensor& t) const {
        for (const Scope* s = this; s; s = s->outer) {
            auto [first, last] = s->constants.equal_range(key);
            for (auto it = first; it != last; ++it)
                if (it->second->tensor()->same_bits(t)) return it->second;
        }
        return nullptr;
    }
};

void share_constants(Graph& graph, Scope& scope, PassContext& context) {
    for (const auto& v : graph.constants()) {
        if (v->uses().empty()) continue;
        uint64_t key = fingerprint(*v->tensor());
        Value* first = scope.find_constant(key, *v->tensor());
        if (!first) {
            scope.constants.emplace(key, v.get());
            continue;
        }
        Rewriting rewriting(context, "share constant", {});
        if (put_in_place(*v, *first, false)) rewriting.done({}, {{v->name(), first->name()}});
    }
}

void share_in(Graph& graph, const Scope* outer, PassContext& context) {
    Scope scope{outer};
    share_constants(graph, scope, context);
    for (const auto& node : graph.nodes()) {
        for (const auto& [_, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) share_in(**nested, &scope, context);
        if (has_nested(*node) || !repeatable(*node)) continue;
        uint64_t key = hash_of(*node);
        Node* first = scope.find_node(key, [&](const Node& other) { return do_the_same(other, *node); });
        if (!first) {
            scope.nodes.emplace(key, node.get());
            continue;
        }
        Rewriting rewriting(context, "share", {node.get()});
        Rewriting::Replaced replaced;
        for (size_t i = 0; i < node->output_count(); ++i) {
            Value &from = *node->output(i), &to = *first->output(i);
            if (!from.uses().empty() && put_in_place(from, to, false)) replaced.emplace_back(from.name(), to.name());
        }
        if (!replaced.empty()) rewriting.done({}, std::move(replaced));
    }
}

}  // namespace

Result<Changed> share_common(Graph& graph, PassContext& context) {
    size_t before = context.rewrites;
    share_in(graph, nullptr, context);
    if (context.rewrites == before) return false;
    sweep(graph);
    return true;
}

}  // namespace tessera
