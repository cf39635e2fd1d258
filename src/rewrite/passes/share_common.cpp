#include <algorithm>
#include <bit>
#include <unordered_map>

#include "base/hash.h"
#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

constexpr int64_t kSamples = 64;

// Of a few of its bytes: most constants that differ, differ there, and the rest are compared.
uint64_t fingerprint(const Tensor& t) {
    uint64_t h = mix(uint64_t(t.dtype()), uint64_t(t.rank()));
    for (int64_t n : t.sizes()) h = mix(h, uint64_t(n));
    if (t.dtype() == DType::string) return t.content_hash();
    auto* bytes = static_cast<const unsigned char*>(t.data());
    int64_t step = std::max<int64_t>(1, t.bytes() / kSamples);
    for (int64_t i = 0; i < t.bytes(); i += step) h = mix(h, bytes[i]);
    return h;
}

uint64_t hash_of(const Attr& a) {
    switch (attr_kind(a)) {
        case AttrKind::Int: return uint64_t(std::get<int64_t>(a));
        case AttrKind::Float: return std::hash<float>{}(std::get<float>(a));
        case AttrKind::String: return std::hash<std::string>{}(std::get<std::string>(a));
        case AttrKind::Ints: {
            uint64_t h = 0;
            for (int64_t n : std::get<std::vector<int64_t>>(a)) h = mix(h, uint64_t(n));
            return h;
        }
        case AttrKind::Tensor: return fingerprint(std::get<Tensor>(a));
        default: return 0;
    }
}

// The inputs, those of a commutative op in one order of two.
std::vector<Value*> ordered_inputs(const Node& node) {
    std::vector<Value*> inputs = node.inputs();
    if (node.is(Trait::Commutative) && inputs.size() == 2) std::sort(inputs.begin(), inputs.end());
    return inputs;
}

}  // namespace

uint64_t hash_of(const Node& node) {
    uint64_t h = reinterpret_cast<uintptr_t>(&node.op());
    for (const Value* v : ordered_inputs(node)) h = mix(h, reinterpret_cast<uintptr_t>(v));
    for (const auto& [name, attr] : node.attrs()) h = mix(mix(h, std::hash<std::string>{}(name)), hash_of(attr));
    return mix(h, node.output_count());
}

namespace {

// Floats by their bits: 0.0 is not -0.0 here.
bool same(const Attr& a, const Attr& b) {
    if (auto* x = std::get_if<float>(&a), *y = std::get_if<float>(&b); x && y)
        return std::bit_cast<uint32_t>(*x) == std::bit_cast<uint32_t>(*y);
    if (auto* x = std::get_if<std::vector<float>>(&a), *y = std::get_if<std::vector<float>>(&b); x && y)
        return std::ranges::equal(*x, *y, {}, std::bit_cast<uint32_t, float>, std::bit_cast<uint32_t, float>);
    return a == b;
}

}  // namespace

bool do_the_same(const Node& a, const Node& b) {
    for (size_t i = 0; i < a.output_count() && i < b.output_count(); ++i)
        if (a.output_given(i) != b.output_given(i)) return false;
    return &a.op() == &b.op() && a.output_count() == b.output_count() && ordered_inputs(a) == ordered_inputs(b) &&
           std::ranges::equal(a.attrs(), b.attrs(), [](const auto& x, const auto& y) {
               return x.first == y.first && same(x.second, y.second);
           });
}

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
