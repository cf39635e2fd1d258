#include "snapshot.h"

#include "base/hash.h"
#include "graph/count.h"
#include "rewrite/pass.h"

namespace tessera::cli {
namespace {

constexpr size_t kLongestFormula = 200;

uint64_t hash_text(const std::string& text) { return hash_bytes(text.data(), text.size()); }

std::optional<double> value_of(const Expr& e, const SymbolValues& sizes) {
    if (auto n = e.as_int()) return double(*n);
    SymbolValues values = sizes;
    for (const std::string& name : free_symbols(e)) values.emplace(name, 1);
    auto n = evaluate_int(e, values);
    return n ? std::optional(double(*n)) : std::nullopt;
}

std::string formula_of(const Expr& e) {
    if (e.as_int()) return {};
    std::string text = to_string(e);
    if (text.size() > kLongestFormula) text = text.substr(0, kLongestFormula) + " ...";
    return text;
}

// Of types, which repeat from snapshot to snapshot, only the text is kept.
uint64_t signature_of(const Application::NodeText& text, const Node& node, const std::vector<std::string>& types) {
    uint64_t h = mix(hash_text(text.to_string()), hash_text(node.name()));
    for (const std::string& t : types) h = mix(h, hash_text(t));
    for (const Value* v : node.inputs()) h = mix(h, v ? hash_text(to_string(v->type())) : 1);
    return h;
}

}  // namespace

class Camera::Shot {
  public:
    Shot(Camera& camera, Snapshot& snapshot) : camera_(camera), snapshot_(snapshot) {}

    void add(const Graph& graph, const std::string& scope) {
        for (const auto& v : graph.inputs()) {
            ItemFacts facts;
            facts.kind = ItemFacts::Kind::Input;
            facts.scope = scope;
            facts.outputs = {v->name()};
            facts.types = {to_string(v->type())};
            places_[v.get()] = {push(std::move(facts), {}), 0};
        }
        for (const auto& node : graph.nodes()) add_node(*node, scope);
        if (!scope.empty()) return;
        for (size_t i = 0; i < graph.outputs().size(); ++i) {
            ItemFacts facts;
            facts.kind = ItemFacts::Kind::Output;
            facts.outputs = {graph.output_names()[i]};
            facts.types = {to_string(graph.outputs()[i]->type())};
            push(std::move(facts), {place_of(*graph.outputs()[i], graph.outputs()[i]->name())});
        }
    }

  private:
    Known& known(const ItemFacts& facts) {
        return camera_.known_[fmt::format("{} {} {}", int(facts.kind), facts.scope, facts.outputs[0])];
    }

    int push(ItemFacts facts, std::vector<ItemRef> inputs, uint64_t signature = 0) {
        Known& k = known(facts);
        k.signature = signature;
        if (!k.facts || *k.facts != facts) k.facts = std::make_shared<const ItemFacts>(std::move(facts));
        snapshot_.items.push_back(k.facts);
        snapshot_.inputs.push_back(std::move(inputs));
        return int(snapshot_.items.size()) - 1;
    }

    // Constants are added when they are used, under the text they have there.
    ItemRef place_of(const Value& v, const std::string& text) {
        auto it = places_.find(&v);
        if (it != places_.end() || !v.is_constant()) return it == places_.end() ? ItemRef{} : it->second;
        ItemFacts facts;
        facts.kind = ItemFacts::Kind::Constant;
        facts.outputs = {text};
        facts.types = {to_string(v.type())};
        facts.bytes = double(v.tensor()->bytes());
        bool by_value = text != v.name();
        if (!by_value) facts.data = v.tensor()->data();
        auto [literal, fresh] = literals_.emplace(text + " " + facts.types[0], ItemRef{});
        if (fresh || !by_value) literal->second = {push(std::move(facts), {}), 0};
        return places_[&v] = literal->second;
    }

    void add_node(const Node& node, const std::string& scope) {
        Application::NodeText text = describe(node);
        std::vector<ItemRef> inputs;
        for (size_t i = 0; i < text.inputs.size(); ++i)
            inputs.push_back(node.input(i) ? place_of(*node.input(i), text.inputs[i]) : ItemRef{});
        for (const auto& [name, attr] : node.attrs()) {
            auto* nested = std::get_if<GraphPtr>(&attr);
            if (!nested) continue;
            std::string owner = node.name().empty() ? node.output()->name() : node.name();
            add(**nested, fmt::format("{}{}.{}", scope.empty() ? "" : scope + " / ", owner, name));
            for (const Value* v : (*nested)->outputs()) inputs.push_back(place_of(*v, v->name()));
        }
        ItemFacts facts;
        facts.op = text.op;
        facts.name = node.name();
        facts.attrs = text.attrs;
        facts.scope = scope;
        facts.outputs = text.outputs;
        facts.nested = int(inputs.size() - text.inputs.size());
        for (size_t i = 0; i < node.output_count(); ++i) facts.types.push_back(to_string(node.output(i)->type()));
        uint64_t signature = signature_of(text, node, facts.types);
        add_cost(node, signature, facts);
        int item = push(std::move(facts), std::move(inputs), signature);
        for (size_t i = 0; i < node.output_count(); ++i) places_[node.output(i)] = {item, int(i)};
    }

    void add_cost(const Node& node, uint64_t signature, ItemFacts& facts) {
        const Known& k = known(facts);
        if (k.facts && k.signature == signature) {
            facts = *k.facts;
            return;
        }
        Cost cost = count(node);
        facts.flops = value_of(cost.flops, camera_.sizes_);
        facts.bytes = value_of(cost.bytes, camera_.sizes_);
        facts.flops_formula = formula_of(cost.flops);
        facts.bytes_formula = formula_of(cost.bytes);
        facts.complete = cost.complete;
    }

    Camera& camera_;
    Snapshot& snapshot_;
    std::unordered_map<const Value*, ItemRef> places_;
    std::unordered_map<std::string, ItemRef> literals_;  // constants by value and type
};

Snapshot Camera::take(const Graph& graph) {
    Snapshot snapshot;
    Shot(*this, snapshot).add(graph, "");
    return snapshot;
}

}  // namespace tessera::cli
