#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/hash.h"
#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

constexpr int kMostCost = 1 << 20;

bool is_size(const Value& v) {
    return v.contents() && !v.contents()->empty() && v.type().is_tensor() && is_int(v.type().tensor().dtype) &&
           v.type().tensor().shape.sizes();
}

uint64_t hash_of(const Value& v) {
    uint64_t h = mix(uint64_t(v.type().tensor().dtype), uint64_t(v.type().tensor().rank()));
    for (const Expr& e : *v.contents()) h = mix(h, e.hash());
    return h;
}

bool same(const Value& a, const Value& b) { return a.type() == b.type() && *a.contents() == *b.contents(); }

// One graph's integers, and what the graphs around it have.
struct SizeScope {
    SizeScope* outer;
    std::unordered_multimap<uint64_t, Value*> sizes = {};

    Value** find(const Value& v, uint64_t key) {
        for (SizeScope* s = this; s; s = s->outer) {
            auto [first, last] = s->sizes.equal_range(key);
            for (auto it = first; it != last; ++it)
                if (same(*it->second, v)) return &it->second;
        }
        return nullptr;
    }
};

class Sharing {
  public:
    explicit Sharing(PassContext& context) : context_(context) {}

    void share(Graph& graph, SizeScope* outer) {
        SizeScope scope{outer};
        for (const auto& owned : graph.nodes()) {
            Node& node = *owned;
            passed_.insert(&node);
            for (const auto& [_, attr] : node.attrs())
                if (auto* nested = std::get_if<GraphPtr>(&attr)) share(**nested, &scope);
            int cost = cost_of(node);
            for (size_t i = 0; i < node.output_count(); ++i) {
                Value& v = *node.output(i);
                costs_[&v] = cost;
                if (!is_size(v) || v.uses().empty() || !repeatable(node)) continue;
                uint64_t key = hash_of(v);
                Value** first = scope.find(v, key);
                if (!first)
                    scope.sizes.emplace(key, &v);
                else if (costs_[*first] > cost && only_used_later(**first, graph))
                    replace(*std::exchange(*first, &v), v);
                else
                    replace(v, **first);
            }
        }
    }

  private:
    void replace(Value& from, Value& to) {
        Rewriting rewriting(context_, "share size", {from.node()});
        if (!put_in_place(from, to, false)) return;
        rewriting.done({}, {{from.name(), to.name()}});
        Node& node = *from.node();
        bool used = false;
        for (size_t i = 0; i < node.output_count(); ++i) used |= !node.output(i)->uses().empty();
        if (!used) node.graph().disconnect(node);  // so that it is no use of what it was computed from
    }

    // Whether nothing that has been passed on the way through `graph` uses it: a later value can then stand for it.
    bool only_used_later(const Value& v, const Graph& graph) const {
        return &v.graph() == &graph && std::all_of(v.uses().begin(), v.uses().end(), [&](const Use& use) {
            return use.graph == &graph && (!use.node || !passed_.contains(use.node));
        });
    }

    // How many nodes compute it, each counted as often as it is used.
    int cost_of(const Node& node) const {
        int cost = 1;
        if (node.op().contents) return cost;  // of types alone
        for (const Value* v : node.inputs())
            if (auto it = v ? costs_.find(v) : costs_.end(); it != costs_.end() && v->contents())
                cost = std::min(kMostCost, cost + it->second);
        return cost;
    }

    PassContext& context_;
    std::unordered_map<const Value*, int> costs_;
    std::unordered_set<const Node*> passed_;
};

}  // namespace

Result<Changed> share_sizes(Graph& graph, PassContext& context) {
    size_t before = context.rewrites;
    Sharing(context).share(graph, nullptr);
    if (context.rewrites == before) return false;
    sweep(graph);
    return true;
}

}  // namespace tessera
