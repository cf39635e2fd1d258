#include "rewrite/fix_sizes.h"

#include <set>
#include <unordered_set>

#include "rewrite/edit.h"

namespace tessera {
namespace {

Type with_sizes(const Type& type, const Bindings& sizes) {
    if (type.is_sequence()) return Type::sequence(with_sizes(type.element(), sizes));
    if (type.is_optional()) return Type::optional(with_sizes(type.element(), sizes));
    if (!type.is_tensor() || !type.tensor().shape.ranked()) return type;
    TensorType t = type.tensor();
    for (int64_t d = 0; d < t.rank(); ++d) t.shape[d] = substitute(t.shape[d], sizes);
    return t;
}

void fix_value(Value& v, const Bindings& sizes) {
    v.set_type(with_sizes(v.type(), sizes));
    if (!v.contents()) return;
    std::vector<Expr> contents;
    for (const Expr& e : *v.contents()) contents.push_back(substitute(e, sizes));
    v.set_contents(std::move(contents));
}

// The symbols that a value's contents depend on, where they depend on sizes alone.
class Dependence {
  public:
    // False: on what the inputs hold too, or on the shape of a value of unknown rank.
    bool follow(const Value* v) {
        if (!v || v->is_constant() || !seen_.insert(v).second) return true;
        if (v->contents()) {
            for (const Expr& e : *v->contents()) add(e);
            return true;
        }
        const Node* node = v->node();
        if (!node || node->is(Trait::Random) || has_nested(*node)) return false;
        if (node->op().contents) {  // of the types of its inputs
            for (const Value* input : node->inputs())
                if (!add_shape(input)) return false;
            return true;
        }
        for (const Value* input : node->inputs())
            if (!follow(input)) return false;
        return true;
    }
    bool add_shape(const Value* v) {
        const Shape* shape = shape_of(v);
        if (!shape) return false;
        for (const Dim& d : *shape) add(d);
        return true;
    }
    const std::set<std::string>& symbols() const { return symbols_; }

  private:
    void add(const Expr& e) {
        for (std::string& name : free_symbols(e)) symbols_.insert(std::move(name));
    }
    std::unordered_set<const Value*> seen_;
    std::set<std::string> symbols_;
};

bool is_unranked(const Value* v) { return v && v->type().is_tensor() && !v->type().tensor().shape.ranked(); }

std::optional<Dependence> branch_decision(const Node& node) {
    Dependence on;
    return node.op().name == "if" && on.follow(node.input(0)) ? std::optional(on) : std::nullopt;
}

// Of the rank of a node's results, where those of its inputs are known.
std::optional<Dependence> rank_decision(const Node& node) {
    Dependence on;
    bool opens = false;
    for (size_t i = 0; i < node.output_count(); ++i) opens |= is_unranked(node.output(i));
    if (!opens || has_nested(node)) return std::nullopt;
    for (const Value* v : node.inputs())
        if (v && !on.add_shape(v)) return std::nullopt;
    return on;
}

template <typename Decision>
void collect(const Graph& graph, const Decision& decision, std::set<std::string>& found) {
    for (const auto& node : graph.nodes()) {
        if (auto on = decision(*node)) found.insert(on->symbols().begin(), on->symbols().end());
        for (const auto& [_, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr); nested && *nested) collect(**nested, decision, found);
    }
}

}  // namespace

std::vector<std::string> deciding_sizes(const Graph& graph) {
    std::set<std::string> given, found;
    for (const auto& v : graph.inputs())
        if (const Shape* shape = shape_of(v.get()))
            for (const Dim& d : *shape)
                for (std::string& name : free_symbols(d)) given.insert(std::move(name));
    collect(graph, branch_decision, found);
    std::erase_if(found, [&](const std::string& name) { return !given.contains(name); });
    if (found.empty()) {  // a branch that is taken may leave nothing open
        collect(graph, rank_decision, found);
        std::erase_if(found, [&](const std::string& name) { return !given.contains(name); });
    }
    return {found.begin(), found.end()};
}

void fix_sizes(Graph& graph, const SymbolValues& sizes) {
    Bindings bindings;
    for (const auto& [name, size] : sizes) bindings.emplace(name, Expr(size));
    fix_sizes(graph, bindings);
}

void fix_sizes(Graph& graph, const Bindings& bindings) {
    for (Graph* g : all_graphs(graph)) {
        for (const auto& v : g->inputs()) fix_value(*v, bindings);
        for (const auto& node : g->nodes())
            for (size_t i = 0; i < node->output_count(); ++i) fix_value(*node->output(i), bindings);
    }
}

}  // namespace tessera
