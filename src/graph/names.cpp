#include "graph/names.h"

#include <algorithm>
#include <functional>
#include <unordered_set>

namespace tessera {
namespace {

void separate(Graph& graph, Value& value) {
    if (!graph.outer()->name_taken(value.name())) return;
    std::string name;
    for (int i = 1; name.empty() || graph.name_taken(name); ++i) name = fmt::format("{}_{}", value.name(), i);
    graph.rename(value, std::move(name));
}

// v12.d0
bool generated_symbol(std::string_view name) {
    size_t dot = name.find('.');
    return dot != std::string_view::npos && generated_number(name.substr(0, dot)) && name.substr(dot).starts_with(".d");
}

// What older opsets have as an attribute comes back under a generated name: its number is set aside from the first.
bool loses_its_name(const Value& v, int opset) {
    return v.is_constant() && opset > 0 && opset < 18 && v.type().tensor().dtype == DType::i64 &&
           v.type().tensor().rank() == 1;
}

// Every value, nested ones after the node they belong to: inputs, constants, then results.
void each_value(Graph& graph, const std::function<void(Value&)>& f) {
    for (const auto& v : graph.inputs()) f(*v);
    for (const auto& v : graph.constants()) f(*v);
    for (const auto& node : graph.nodes()) {
        for (size_t i = 0; i < node->output_count(); ++i) f(*node->output(i));
        for (const auto& [_, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) each_value(**nested, f);
    }
}

Type map_dims(const Type& type, const std::function<Dim(const Dim&, int64_t)>& f) {
    if (type.is_sequence()) return Type::sequence(map_dims(type.element(), f));
    if (type.is_optional()) return Type::optional(map_dims(type.element(), f));
    if (!type.is_tensor() || !type.tensor().shape.ranked()) return type;
    TensorType t = type.tensor();
    for (int64_t i = 0; i < t.rank(); ++i) t.shape[i] = f(t.shape[i], i);
    return t;
}

// Symbols named after generated values, each to be named after the first value that has it.
class Symbols {
  public:
    void keep(const Value& v) {
        map_dims(v.type(), [&](const Dim& d, int64_t) {
            if (!d.as_int())
                for (const std::string& name : free_symbols(d))
                    if (!generated_symbol(name)) taken_.insert(name);
            return d;
        });
    }
    void find(const Value& v) {
        map_dims(v.type(), [&](const Dim& d, int64_t i) {
            if (d.as_int()) return d;
            for (const std::string& name : free_symbols(d)) {
                if (!generated_symbol(name) || bindings_.contains(name)) continue;
                std::string wanted = fmt::format("{}.d{}", v.name(), i), chosen = wanted;
                for (int n = 1; !taken_.insert(chosen).second; ++n) chosen = fmt::format("{}_{}", wanted, n);
                changed_ |= chosen != name;
                bindings_.emplace(name, symbol(chosen));
            }
            return d;
        });
    }
    void rename(Value& v) const {
        v.set_type(
            map_dims(v.type(), [&](const Dim& d, int64_t) { return d.as_int() ? d : substitute(d, bindings_); }));
        if (!v.contents()) return;
        std::vector<Expr> contents = *v.contents();
        for (Expr& e : contents)
            if (!e.as_int()) e = substitute(e, bindings_);
        v.set_contents(std::move(contents));
    }
    bool changed() const { return changed_; }

  private:
    Bindings bindings_;
    std::unordered_set<std::string> taken_;
    bool changed_ = false;
};

}  // namespace

void separate_names(Graph& graph) {
    for (const auto& node : graph.nodes()) {
        for (const auto& [_, attr] : node->attrs()) {
            auto* nested = std::get_if<GraphPtr>(&attr);
            if (!nested) continue;
            Graph& g = **nested;
            for (const auto& v : g.inputs()) separate(g, *v);
            for (const auto& v : g.constants()) separate(g, *v);
            for (const auto& n : g.nodes())
                for (size_t i = 0; i < n->output_count(); ++i) separate(g, *n->output(i));
            separate_names(g);
        }
    }
}

std::optional<uint64_t> generated_number(std::string_view name) {
    if (name.size() < 2 || name.size() > 16 || name[0] != 'v') return std::nullopt;
    uint64_t n = 0;
    for (char c : name.substr(1)) {
        if (c < '0' || c > '9') return std::nullopt;
        n = n * 10 + uint64_t(c - '0');
    }
    return n;
}

void renumber_names(Graph& graph) {
    std::unordered_set<std::string> taken(graph.output_names().begin(), graph.output_names().end());
    std::vector<std::pair<Value*, bool>> numbered;
    each_value(graph, [&](Value& v) {
        bool ours = v.kind() != Value::Kind::Input && generated_number(v.name()) && !taken.contains(v.name());
        if (!ours) taken.insert(v.name());
        if (ours || loses_its_name(v, graph.info().opset)) numbered.emplace_back(&v, ours);
    });
    for (auto [v, ours] : numbered)
        if (ours) v->graph().rename(*v, "");  // out of each other's way
    size_t next = 0;
    for (auto [v, ours] : numbered) {
        std::string name;
        do name = fmt::format("v{}", next++);
        while (taken.contains(name));
        if (ours) v->graph().rename(*v, name);
    }
    Symbols symbols;
    each_value(graph, [&](Value& v) { symbols.keep(v); });
    each_value(graph, [&](Value& v) { symbols.find(v); });
    if (symbols.changed()) each_value(graph, [&](Value& v) { symbols.rename(v); });
}

void name_outputs(Graph& graph) {
    std::unordered_set<const Value*> named;
    for (size_t i = 0; i < graph.outputs().size(); ++i)
        if (graph.outputs()[i]->name() == graph.output_names()[i]) named.insert(graph.outputs()[i]);
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
        Value* v = graph.outputs()[i];
        const std::string& name = graph.output_names()[i];
        if (&v->graph() != &graph || v->kind() == Value::Kind::Input || !named.insert(v).second) continue;
        if (Value* other = graph.find_value(name)) {
            if (other->kind() == Value::Kind::Input) continue;
            graph.rename(*other, "");
        }
        graph.rename(*v, name);
    }
}

}  // namespace tessera
