#include "rewrite/edit.h"

#include <algorithm>

#include "graph/infer.h"
#include "graph/refine.h"

namespace tessera {

std::vector<Graph*> all_graphs(Graph& graph) {
    std::vector<Graph*> graphs = {&graph};
    for (size_t i = 0; i < graphs.size(); ++i)
        for (const auto& node : graphs[i]->nodes())
            for (const auto& [_, attr] : node->attrs())
                if (auto* nested = std::get_if<GraphPtr>(&attr)) graphs.push_back(nested->get());
    return graphs;
}

namespace {

// The node that has the nested graph among its attributes.
const Node* owner_of(const Graph& graph) {
    if (!graph.outer()) return nullptr;
    for (const auto& node : graph.outer()->nodes())
        for (const auto& [_, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr); nested && nested->get() == &graph) return node.get();
    return nullptr;
}

}  // namespace

const Shape* shape_of(const Value* v) {
    return v && v->type().is_tensor() && v->type().tensor().shape.ranked() ? &v->type().tensor().shape : nullptr;
}

std::optional<Expr> splat(const Tensor& t) {
    constexpr int64_t kMostElements = 4096;
    if (t.elements() < 1 || t.elements() > kMostElements) return std::nullopt;
    const size_t size = dtype_bytes(t.dtype());
    const char* data = static_cast<const char*>(t.data());
    for (int64_t i = 1; i < t.elements(); ++i)
        if (std::memcmp(data, data + size_t(i) * size, size) != 0) return std::nullopt;
    if (is_float(t.dtype())) return real_const(t.real_at(0), t.dtype());
    return int_const(t.int_at(0), t.dtype());
}

bool has_nested(const Node& node) {
    return std::any_of(node.attrs().begin(), node.attrs().end(),
                       [](const auto& a) { return std::holds_alternative<GraphPtr>(a.second); });
}

bool repeatable(const Node& node) {
    if (!node.is(Trait::Pure)) return false;
    return std::all_of(node.attrs().begin(), node.attrs().end(), [](const auto& a) {
        auto* nested = std::get_if<GraphPtr>(&a.second);
        return !nested || std::all_of((*nested)->nodes().begin(), (*nested)->nodes().end(),
                                      [](const auto& n) { return repeatable(*n); });
    });
}

bool agrees(const Node& node) {
    auto types = infer_types(node.view());
    if (!types.ok()) return false;
    for (size_t i = 0; i < node.output_count() && i < types->size(); ++i)
        if (!refine((*types)[i], node.output(i)->type(), node.output(i)->name())) return false;
    return true;
}

namespace {

bool all_agree(const std::vector<Use>& uses) {
    return std::all_of(uses.begin(), uses.end(), [](const Use& use) {
        const Node* node = use.node ? use.node : owner_of(*use.graph);
        return !node || agrees(*node);
    });
}

}  // namespace

bool users_agree(const Value& value) { return all_agree(value.uses()); }

bool put_in_place(Value& from, Value& to, bool rename) {
    bool same = from.type() == to.type() && !to.is_constant() && !to.contents();
    Type before = to.type();
    std::vector<Use> moved = from.uses();
    if (auto type = refine(to.type(), from.type(), to.name()); type && !to.is_constant()) to.set_type(std::move(*type));
    bool refined = !(to.type() == before);
    from.graph().replace_uses(&from, &to);
    if (!same && !(refined ? users_agree(to) : all_agree(moved))) {
        for (const Use& use : moved)
            use.node ? use.graph->set_input(*use.node, use.index, &from) : use.graph->set_output(use.index, &from);
        to.set_type(std::move(before));
        return false;
    }
    if (!rename) return true;
    std::string name = from.name();
    from.graph().rename(from, "");
    to.graph().rename(to, std::move(name));
    return true;
}

Rewriting::Rewriting(PassContext& context, std::string rule, const Nodes& gone) : context_(context) {
    if (!context.record) return;
    application_.pass = context.pass;
    application_.rule = std::move(rule);
    if (!gone.empty()) application_.where = gone[0]->name().empty() ? gone[0]->output()->name() : gone[0]->name();
    for (const Node* n : gone) application_.removed.push_back(describe(*n));
}

void Rewriting::done(const Nodes& made, Replaced replaced) {
    ++context_.rewrites;
    if (!context_.record) return;
    for (const Node* n : made) application_.added.push_back(describe(*n));
    application_.replaced = std::move(replaced);
    context_.applications.push_back(std::move(application_));
}

void sweep(Graph& graph) {
    std::vector<Graph*> graphs = all_graphs(graph);
    // A node that goes takes its nested graphs along: only those that stay are looked at again.
    std::for_each(graphs.rbegin(), graphs.rend(), [](Graph* g) { g->erase_unused(); });
}

}  // namespace tessera
