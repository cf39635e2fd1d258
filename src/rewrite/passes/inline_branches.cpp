#include <algorithm>
#include <set>
#include <unordered_map>

#include "graph/op_view.h"
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

// What iterations append to a sequence that begins empty, all of the same size: nullptr if it is not that.
Value* appended(const Node& node, const Graph& body, size_t i) {
    const Value *initial = node.input(i + 2), *inside = body.inputs()[i + 2].get(), *outcome = body.outputs()[i + 1];
    const Node* insert = outcome->node();
    if (!initial || !initial->node() || initial->node()->op().name != "sequence_empty") return nullptr;
    if (!insert || &outcome->graph() != &body || insert->op().name != "sequence_insert") return nullptr;
    if (insert->input(0) != inside || insert->input(2)) return nullptr;
    if (inside->uses().size() != 1 || outcome->uses().size() != 1) return nullptr;
    Value* element = insert->input(1);
    if (!element->type().is_tensor() || !element->type().tensor().shape.ranked()) return nullptr;
    std::set<std::string> around;
    for (const Value* v : node.inputs())
        if (v && v->type().is_tensor())
            for (const Dim& d : v->type().tensor().shape)
                for (const std::string& name : free_symbols(d)) around.insert(name);
    for (const Dim& d : element->type().tensor().shape)
        for (const std::string& name : free_symbols(d))
            if (!around.contains(name)) return nullptr;
    return element;
}

// The axis along which all elements of a sequence are concatenated, where their sizes are known well enough for that to
// be a reshape of what stacks them; -1 where not.
int64_t concat_axis(const Node& concat, const Shape& element) {
    const bool fresh = concat.view().integer("new_axis") != 0;
    const int64_t rank = element.rank() + (fresh ? 1 : 0), given = concat.view().integer("axis");
    const int64_t axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis >= rank) return -1;
    for (int64_t d = axis + 1; d < element.rank() && !fresh; ++d)
        if (!element[d].as_int()) return -1;
    return axis;
}

// The concatenation of all elements of a sequence, of [n, ...], which has them one after the other.
Result<Value*> concatenated(Graph& graph, const Node& concat, Value* stacked, const Shape& element) {
    const int64_t axis = concat_axis(concat, element);
    Value* moved = stacked;
    if (axis > 0) {
        std::vector<int64_t> order;
        for (int64_t d = 0; d < element.rank(); ++d) order.push_back(d + 1);
        order.insert(order.begin() + axis, 0);
        moved = TRY(graph.add({.op = find_op("transpose"), .inputs = {stacked}, .attrs = {{"perm", Attr(order)}}}))
                    ->output();
    }
    if (concat.view().integer("new_axis")) return moved;
    std::vector<int64_t> sizes;
    for (int64_t d = 0; d < element.rank(); ++d) sizes.push_back(d < axis ? 0 : d == axis ? -1 : *element[d].as_int());
    Value* shape = graph.constant(Tensor::ints(sizes));
    return TRY(graph.add({.op = find_op("reshape"), .inputs = {moved, shape}}))->output();
}

// Whether all that reads a sequence of such elements concatenates it.
bool only_concatenated(const Value& sequence, const Shape& element) {
    const auto& uses = sequence.uses();
    return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
        return use.node && use.node->op().name == "concat_from_sequence" && &use.node->graph() == &sequence.graph() &&
               concat_axis(*use.node, element) >= 0;
    });
}

// A carried value that no iteration changes is used from around the loop instead; one that nobody reads goes; a
// sequence that iterations append to, and that is concatenated after them, is collected.
Result<Changed> settle_carried(Graph& graph, Node& node, PassContext& context) {
    const Graph& body = *std::get<GraphPtr>(node.attrs().at("body"));
    const size_t carried = body.inputs().size() - 2;
    std::vector<bool> gone(carried);
    std::vector<std::pair<size_t, Value*>> collected;
    for (size_t i = 0; i < carried; ++i) {
        gone[i] = stays(node, body, i) || unread(node, body, i);
        if (gone[i] || node.output_count() + 1 != body.outputs().size()) continue;
        Value* element = appended(node, body, i);
        gone[i] = element && only_concatenated(*node.output(i), element->type().tensor().shape);
        if (gone[i]) collected.emplace_back(i, element);
    }
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
    for (const auto& [i, element] : collected) fewer->add_output(copied(copies, element));
    fewer->erase_unused();
    spec.attrs["body"] = std::move(fewer);
    std::vector<size_t> kept;
    for (size_t i = 0; i < node.output_count(); ++i) {
        if (i < carried && gone[i]) continue;
        kept.push_back(i);
        spec.given.push_back(node.output_given(i));
    }
    spec.outputs = kept.size() + collected.size();
    spec.given.resize(spec.outputs, true);
    Node* made = TRY(graph.add(std::move(spec)));
    Rewriting rewriting(context, "carried needlessly", {&node});
    Rewriting::Replaced replaced;
    for (size_t k = 0; k < collected.size(); ++k) {
        const auto [i, element] = collected[k];
        while (!node.output(i)->uses().empty()) {
            Node& concat = *node.output(i)->uses()[0].node;
            Value* all =
                TRY(concatenated(graph, concat, made->output(kept.size() + k), element->type().tensor().shape));
            graph.replace_uses(concat.output(), all);
            graph.disconnect(concat);
        }
    }
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

bool has_rank(const Value* v, int64_t rank) {
    return v && v->type().is_tensor() && v->type().tensor().shape.ranked() && v->type().tensor().rank() == rank;
}

bool is_plain_product(const Node& node) {
    if (node.op().name == "matmul") return true;
    if (node.op().name != "gemm") return false;
    const OpView view = node.view();
    return view.real("alpha") == 1 && view.real("beta") == 1 && !view.integer("transA") && !view.integer("transB");
}

// The gather of one step, [N, K], of a sequence [T, N, K] that lies around the body, where a product by weights that
// lie there too multiplies it.
const Node* step_of_sequence(const Node& product, const Graph& body) {
    if (!is_plain_product(product) || !has_rank(product.input(0), 2) || !has_rank(product.input(1), 2)) return nullptr;
    const Node* step = product.input(0)->node();
    if (!step || &product.input(0)->graph() != &body || step->op().name != "gather") return nullptr;
    const Value &sequence = *step->input(0), &weights = *product.input(1);
    if (!has_rank(&sequence, 3) || !has_rank(step->input(1), 0) || step->view().integer("axis") != 0) return nullptr;
    if (sequence.is_constant() || !is_around(sequence, body)) return nullptr;
    if (!weights.is_constant() && !is_around(weights, body)) return nullptr;
    const auto inner = sequence.type().tensor().shape[2].as_int();
    return inner && inner == weights.type().tensor().shape[0].as_int() ? step : nullptr;
}

// Steps of a sequence times weights: the whole sequence is multiplied before the loop, and its iterations take steps of
// that. The weights are read once then, not in every iteration.
Result<Changed> project_sequences(Graph& graph, Node& node, PassContext& context) {
    if (!admits(context.precision, Exactness::Reassociates)) return false;
    Graph& body = *std::get<GraphPtr>(node.attrs().at("body"));
    const size_t count = body.nodes().size();
    Changed changed = false;
    for (size_t i = 0; i < count; ++i) {
        Node& product = *body.nodes()[i];
        if (product.output_count() != 1 || product.output()->uses().empty()) continue;
        const Node* step = step_of_sequence(product, body);
        if (!step) continue;
        Value* weights = product.input(1);
        if (&weights->graph() == &body) weights = graph.constant(*weights->tensor(), weights->name());
        Node* whole = TRY(graph.add({.op = find_op("matmul"), .inputs = {step->input(0), weights}}));
        Node* made =
            TRY(body.add({.op = &step->op(), .inputs = {whole->output(), step->input(1)}, .attrs = step->attrs()}));
        Rewriting rewriting(context, "product of a sequence before a loop", {&product});
        if (Value* more = product.input(2))
            made = TRY(body.add({.op = find_op("add"), .inputs = {made->output(), more}}));
        if (!put_in_place(*product.output(), *made->output(), true)) continue;
        rewriting.done({whole, made});
        body.disconnect(product);
        changed = true;
    }
    if (!changed) return false;
    body.sort();
    body.erase_unused();
    return true;
}

Result<Changed> simplify_loop(Graph& graph, Node& node, PassContext& context) {
    if (TRY(drop_loop(graph, node, context)) || TRY(settle_carried(graph, node, context))) return true;
    const Changed hoisted = TRY(hoist_products(graph, node, context));
    return TRY(project_sequences(graph, node, context)) || hoisted;
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
