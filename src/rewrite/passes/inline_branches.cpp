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
            if (node.op().name == "loop") here |= TRY(drop_loop(g, node, context));
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
