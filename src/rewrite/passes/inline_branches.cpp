#include <algorithm>
#include <unordered_map>

#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

using Copies = std::unordered_map<const Value*, Value*>;

Value* copied(const Copies& copies, Value* v) {
    auto it = copies.find(v);
    return it == copies.end() ? v : it->second;  // a value from around the graph that is copied
}

// The constants and nodes of `from`, appended to `to`. The copies keep names where those are free, types and contents.
Status copy_nodes(const Graph& from, Graph& to, Copies& copies) {
    for (const auto& v : from.constants()) copies[v.get()] = to.constant(*v->tensor(), v->name());
    for (const auto& node : from.nodes()) {
        NodeSpec spec{.op = &node->op(),
                      .inputs = {},
                      .attrs = node->attrs(),
                      .outputs = node->output_count(),
                      .name = node->name(),
                      .metadata = node->metadata()};
        for (Value* v : node->inputs()) spec.inputs.push_back(v ? copied(copies, v) : nullptr);
        for (auto& [_, attr] : spec.attrs) {
            auto* nested = std::get_if<GraphPtr>(&attr);
            if (!nested) continue;
            const Graph& inner = **nested;
            GraphPtr copy = to.nested(inner.name());
            copy->doc_string = inner.doc_string;
            copy->metadata = inner.metadata;
            for (const auto& v : inner.inputs()) {
                Value* input = copy->add_input(v->name(), v->type(), v->tensor());
                input->set_contents(v->contents());
                copies[v.get()] = input;
            }
            TRY(copy_nodes(inner, *copy, copies));
            for (size_t i = 0; i < inner.outputs().size(); ++i)
                copy->add_output(copied(copies, inner.outputs()[i]), inner.output_names()[i]);
            attr = std::move(copy);
        }
        for (size_t i = 0; i < node->output_count(); ++i) {
            spec.output_names.push_back(node->output(i)->name());
            spec.given.push_back(node->output_given(i));
        }
        Node* made = TRY(to.add(std::move(spec)));
        for (size_t i = 0; i < node->output_count(); ++i) {
            made->output(i)->set_type(node->output(i)->type());
            made->output(i)->set_contents(node->output(i)->contents());
            copies[node->output(i)] = made->output(i);
        }
    }
    return {};
}

std::optional<bool> known_condition(const Value* v) {
    if (!v || !v->is_constant() || v->tensor()->elements() != 1) return std::nullopt;
    return v->tensor()->int_at(0) != 0;
}

Result<Changed> inline_if(Graph& graph, Node& node, PassContext& context) {
    auto condition = known_condition(node.input(0));
    if (!condition) return false;
    GraphPtr branch = std::get<GraphPtr>(node.attrs().at(*condition ? "then_branch" : "else_branch"));
    Copies copies;
    size_t first = graph.nodes().size();
    TRY(copy_nodes(*branch, graph, copies));
    Rewriting::Nodes made;
    for (size_t i = first; i < graph.nodes().size(); ++i) made.push_back(graph.nodes()[i].get());
    Rewriting rewriting(context, *condition ? "take then branch" : "take else branch", {&node});
    Rewriting::Replaced replaced;
    for (size_t i = 0; i < node.output_count(); ++i) {
        Value &was = *node.output(i), &is = *copied(copies, branch->outputs()[i]);
        replaced.emplace_back(was.name(), is.name());
        if (!put_in_place(was, is, false)) return false;
    }
    rewriting.done(made, std::move(replaced));
    graph.disconnect(node);
    return true;
}

// A loop whose trip count or first condition says that it does not run, and of which only carried values are used.
Result<Changed> drop_loop(Graph& graph, Node& node, PassContext& context) {
    const Value *trips = node.input(0), *condition = node.input(1);
    bool none = trips && trips->is_constant() && trips->tensor()->elements() == 1 && trips->tensor()->int_at(0) <= 0;
    if (!none && known_condition(condition) != false) return false;
    size_t carried = node.inputs().size() > 2 ? node.inputs().size() - 2 : 0;
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty() && (i >= carried || !node.input(i + 2))) return false;
    Rewriting rewriting(context, "loop that never runs", {&node});
    Rewriting::Replaced replaced;
    for (size_t i = 0; i < node.output_count() && i < carried; ++i) {
        if (!node.input(i + 2)) continue;
        replaced.emplace_back(node.output(i)->name(), node.input(i + 2)->name());
        graph.replace_uses(node.output(i), node.input(i + 2));
    }
    rewriting.done({}, std::move(replaced));
    graph.disconnect(node);
    return true;
}

// Whether a carried value stays what it was at first, of which as much is known outside.
bool stays(const Node& node, const Graph& body, size_t i) {
    const Value *initial = node.input(i + 2), *inside = body.inputs()[i + 2].get();
    if (!initial || body.outputs()[i + 1] != inside) return false;
    const Type &outer = initial->type(), &inner = inside->type();
    if (!outer.is_tensor() || !inner.is_tensor()) return outer == inner;
    return outer.tensor().dtype == inner.tensor().dtype && outer.tensor().shape.ranked();
}

// Whether neither the body nor anything after the loop reads a carried value.
bool unread(const Node& node, const Graph& body, size_t i) {
    return body.inputs()[i + 2]->uses().empty() && i < node.output_count() && node.output(i)->uses().empty();
}

// A carried value that no iteration changes is used from around the loop instead; one that nobody reads goes.
Result<Changed> settle_carried(Graph& graph, Node& node, PassContext& context) {
    const Graph& body = *std::get<GraphPtr>(node.attrs().at("body"));
    const size_t carried = body.inputs().size() - 2;
    std::vector<bool> gone(carried);
    for (size_t i = 0; i < carried; ++i) gone[i] = stays(node, body, i) || unread(node, body, i);
    if (std::count(gone.begin(), gone.end(), true) == 0) return false;
    GraphPtr fewer = graph.nested(body.name());
    fewer->doc_string = body.doc_string;
    fewer->metadata = body.metadata;
    Copies copies;
    NodeSpec spec{.op = &node.op(),
                  .inputs = {node.input(0), node.input(1)},
                  .attrs = node.attrs(),
                  .name = node.name(),
                  .metadata = node.metadata()};
    for (size_t i = 0; i < body.inputs().size(); ++i) {
        const Value& was = *body.inputs()[i];
        if (i >= 2 && gone[i - 2]) {
            copies[&was] = node.input(i);
            continue;
        }
        Value* is = fewer->add_input(was.name(), was.type(), was.tensor());
        is->set_contents(was.contents());
        copies[&was] = is;
        if (i >= 2) spec.inputs.push_back(node.input(i));
    }
    TRY(copy_nodes(body, *fewer, copies));
    for (size_t i = 0; i < body.outputs().size(); ++i)
        if (i == 0 || i > carried || !gone[i - 1])
            fewer->add_output(copied(copies, body.outputs()[i]), body.output_names()[i]);
    spec.attrs["body"] = std::move(fewer);
    std::vector<size_t> kept;
    for (size_t i = 0; i < node.output_count(); ++i) {
        if (i < carried && gone[i]) continue;
        kept.push_back(i);
        spec.given.push_back(node.output_given(i));
    }
    spec.outputs = kept.size();
    Node* made = TRY(graph.add(std::move(spec)));
    Rewriting rewriting(context, "carried needlessly", {&node});
    Rewriting::Replaced replaced;
    for (size_t i = 0; i < carried; ++i) {
        if (!gone[i] || i >= node.output_count() || node.output(i)->uses().empty()) continue;
        replaced.emplace_back(node.output(i)->name(), node.input(i + 2)->name());
        graph.replace_uses(node.output(i), node.input(i + 2));
    }
    for (size_t k = 0; k < kept.size(); ++k)
        if (!put_in_place(*node.output(kept[k]), *made->output(k), true)) return false;
    rewriting.done({made}, std::move(replaced));
    graph.disconnect(node);
    return true;
}

bool is_around(const Value& v, const Graph& body) {
    for (const Graph* g = body.outer(); g; g = g->outer())
        if (&v.graph() == g) return true;
    return false;
}

// Whether a product of the body is the same in every iteration, and cannot fail where no iteration computes it: sizes
// of a run are those of one operand, and none is matched with another.
bool same_each_time(const Node& product, const Graph& body) {
    if (!product.is(Trait::Bilinear) || !product.is(Trait::Pure) || product.output_count() != 1) return false;
    if (!product.output()->type().is_tensor() || !product.output()->type().tensor().shape.ranked()) return false;
    const Shape& y = product.output()->type().tensor().shape;
    size_t dynamic = 0, from_around = 0;
    for (const Value* v : product.inputs()) {
        if (!v) continue;
        if (!v->is_constant() && !is_around(*v, body)) return false;
        if (!v->type().is_tensor() || !v->type().tensor().shape.ranked()) return false;
        bool open = false;
        for (const Dim& d : v->type().tensor().shape) {
            if (d.as_int()) continue;
            open = true;
            if (std::none_of(y.begin(), y.end(), [&](const Dim& out) { return out == d; })) return false;
        }
        dynamic += open;
        from_around += !v->is_constant();
    }
    return dynamic <= 1 && from_around > 0;
}

// A product of what lies around the loop is computed once, before it.
Result<Changed> hoist_products(Graph& graph, Node& node, PassContext& context) {
    Graph& body = *std::get<GraphPtr>(node.attrs().at("body"));
    Changed changed = false;
    for (size_t i = 0; i < body.nodes().size(); ++i) {
        Node& product = *body.nodes()[i];
        if (product.output()->uses().empty() || !same_each_time(product, body)) continue;
        NodeSpec spec{.op = &product.op(), .attrs = product.attrs(), .name = product.name()};
        for (Value* v : product.inputs())
            spec.inputs.push_back(v && &v->graph() == &body ? graph.constant(*v->tensor(), v->name()) : v);
        Node* made = TRY(graph.add(std::move(spec)));
        Rewriting rewriting(context, "product before a loop", {&product});
        Rewriting::Replaced replaced = {{product.output()->name(), made->output()->name()}};
        body.replace_uses(product.output(), made->output());
        rewriting.done({made}, std::move(replaced));
        body.disconnect(product);
        changed = true;
    }
    if (changed) body.erase_unused();
    return changed;
}

Result<Changed> simplify_loop(Graph& graph, Node& node, PassContext& context) {
    if (TRY(drop_loop(graph, node, context)) || TRY(settle_carried(graph, node, context))) return true;
    return hoist_products(graph, node, context);
}

}  // namespace

Result<Changed> inline_branches(Graph& graph, PassContext& context) {
    Changed changed = false;
    std::vector<Graph*> open = {&graph};
    while (!open.empty()) {
        Graph& g = *open.back();
        open.pop_back();
        size_t before = g.nodes().size();
        Changed here = false;
        for (size_t i = 0; i < g.nodes().size(); ++i) {  // also those that come out of a branch
            Node& node = *g.nodes()[i];
            if (node.op().name == "if") here |= TRY(inline_if(g, node, context));
            if (node.op().name == "loop") here |= TRY(simplify_loop(g, node, context));
        }
        if (here || g.nodes().size() != before) {
            g.sort();
            g.erase_unused();
        }
        changed |= here;
        for (const auto& node : g.nodes())
            for (const auto& [_, attr] : node->attrs())
                if (auto* nested = std::get_if<GraphPtr>(&attr)) open.push_back(nested->get());
    }
    return changed;
}

}  // namespace tessera
