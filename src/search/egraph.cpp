#include "search/egraph.h"

#include <algorithm>

#include "base/check.h"
#include "graph/evaluate/evaluate_node.h"
#include "rewrite/edit.h"

namespace tessera {
namespace {

bool unused(const Node& node) {
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty()) return false;
    return true;
}

}  // namespace

EGraph::EGraph(std::unique_ptr<Graph> graph) : graph_(std::move(graph)) {
    for (const auto& v : graph_->inputs()) new_class(*v);
    for (const auto& v : graph_->constants()) new_class(*v);
    std::vector<Node*> nodes;
    for (const auto& n : graph_->nodes()) nodes.push_back(n.get());
    for (Node* n : nodes) add(*n);
    rebuild();
}

ClassId EGraph::find(ClassId c) const {
    while (parent_[size_t(c)] != c) {
        parent_[size_t(c)] = parent_[size_t(parent_[size_t(c)])];
        c = parent_[size_t(c)];
    }
    return c;
}

ClassId EGraph::class_of(const Value& value) const {
    auto found = class_of_.find(&value);
    CHECK(found != class_of_.end(), "{} has no class", value.name());
    return find(found->second);
}

ClassId EGraph::new_class(Value& value) {
    auto c = ClassId(classes_.size());
    parent_.push_back(c);
    classes_.push_back({&value, {&value}, value.is_constant()});
    class_of_.emplace(&value, c);
    ++live_classes_;
    return c;
}

ClassId EGraph::add(Value& value) {
    auto found = class_of_.find(&value);
    if (found != class_of_.end()) return find(found->second);
    CHECK(!value.node(), "{} is of a node that was not added", value.name());
    return new_class(value);
}

Node* EGraph::find_equal(Node& node) const {
    if (has_nested(node) || !repeatable(node)) return nullptr;
    auto [first, last] = nodes_.equal_range(hash_of(node));
    for (auto it = first; it != last; ++it)
        if (it->second != &node && do_the_same(*it->second, node)) return it->second;
    return nullptr;
}

void EGraph::hash(Node& node) {
    uint64_t key = hash_of(node);
    nodes_.emplace(key, &node);
    hashed_[&node] = key;
}

void EGraph::unhash(Node& node) {
    auto at = hashed_.find(&node);
    if (at == hashed_.end()) return;
    auto [first, last] = nodes_.equal_range(at->second);
    for (auto it = first; it != last; ++it)
        if (it->second == &node) {
            nodes_.erase(it);
            break;
        }
    hashed_.erase(at);
}

Node* EGraph::add(Node& node) {
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        Value* v = node.input(i);
        if (!v) continue;
        Value* r = representative(add(*v));
        if (r != v) graph_->set_input(node, i, r);
    }
    if (Node* equal = find_equal(node)) {
        for (size_t i = 0; i < node.output_count(); ++i) {
            graph_->replace_uses(node.output(i), representative(*equal->output(i)));
            class_of_[node.output(i)] = class_of(*equal->output(i));
        }
        graph_->disconnect(node);
        replaced_by_[&node] = equal;
        return equal;
    }
    bool constant = node.is(Trait::Pure) && !has_nested(node);
    for (const Value* v : node.inputs()) constant = constant && (!v || weight_only(class_of(*v)));
    constant = constant && !node.inputs().empty();
    for (size_t i = 0; i < node.output_count(); ++i)
        classes_[size_t(new_class(*node.output(i)))].weight_only = constant;
    hash(node);
    ++live_nodes_;
    return &node;
}

bool EGraph::merge(Value& a, Value& b) {
    ClassId x = class_of(a), y = class_of(b);
    if (x == y) return true;
    Class *to = &classes_[size_t(x)], *from = &classes_[size_t(y)];
    if (!(to->representative->type() == from->representative->type())) return false;
    // A constant says the most; then what has more uses moves less.
    auto rank = [](const Class& c) {
        const Value& r = *c.representative;
        return std::pair(r.is_constant() ? 2 : r.contents() ? 1 : 0, r.uses().size());
    };
    if (rank(*to) < rank(*from)) {
        std::swap(x, y);
        std::swap(to, from);
    }
    parent_[size_t(y)] = x;
    to->members.insert(to->members.end(), from->members.begin(), from->members.end());
    stale_.push_back(from->representative);
    bool either = to->weight_only || from->weight_only, differs = to->weight_only != from->weight_only;
    to->weight_only = false;
    from->members.clear();
    --live_classes_;
    if (either && differs)
        set_weight_only(x);
    else
        to->weight_only = either;
    return true;
}

void EGraph::set_weight_only(ClassId c) {
    std::vector<ClassId> todo = {c};
    while (!todo.empty()) {
        ClassId at = find(todo.back());
        todo.pop_back();
        if (classes_[size_t(at)].weight_only) continue;
        classes_[size_t(at)].weight_only = true;
        for (Value* member : classes_[size_t(at)].members)
            for (const Use& use : member->uses()) {
                if (!use.node || !use.node->is(Trait::Pure) || has_nested(*use.node)) continue;
                const auto& inputs = use.node->inputs();
                if (std::all_of(inputs.begin(), inputs.end(),
                                [&](Value* v) { return !v || weight_only(class_of(*v)); }))
                    for (size_t i = 0; i < use.node->output_count(); ++i)
                        todo.push_back(class_of(*use.node->output(i)));
            }
    }
}

void EGraph::drop(Node& node, Node& for_this) {
    for (size_t i = 0; i < node.output_count(); ++i) {
        merge(*node.output(i), *for_this.output(i));
        Class& c = classes_[size_t(class_of(*node.output(i)))];
        std::erase(c.members, node.output(i));
        if (c.representative == node.output(i)) {
            c.representative = for_this.output(i);
            stale_.push_back(node.output(i));
        }
    }
    unhash(node);
    replaced_by_[&node] = &for_this;
    --live_nodes_;
    if (unused(node)) graph_->disconnect(node);
}

void EGraph::rebuild() {
    while (!stale_.empty()) {
        Value* old = stale_.back();
        stale_.pop_back();
        Value* now = representative(*old);
        if (now == old) continue;
        std::vector<Use> uses = old->uses();
        for (const Use& use : uses)
            if (!use.node) use.graph->set_output(use.index, now);
        for (const Use& use : uses) {
            if (!use.node || use.node->input(use.index) != old) continue;
            Node& node = *use.node;
            if (use.graph != graph_.get()) {
                use.graph->set_input(node, use.index, now);
                continue;
            }
            unhash(node);
            for (size_t i = 0; i < node.inputs().size(); ++i)
                if (node.input(i) == old) graph_->set_input(node, i, now);
            if (Node* equal = find_equal(node))
                drop(node, *equal);
            else
                hash(node);
        }
        // A node that another one replaced uses nothing more, once nobody uses it.
        if (Node* n = old->node(); n && !alive(*n) && unused(*n)) graph_->disconnect(*n);
    }
}

Value* EGraph::current(Value& value) const {
    Value* v = &value;
    while (v->node() && !alive(*v->node())) {
        auto it = replaced_by_.find(v->node());
        CHECK(it != replaced_by_.end(), "{} went without a trace", v->name());
        v = it->second->output(v->index());
    }
    return v;
}

std::vector<ClassId> EGraph::needs(const Node& node) const {
    std::vector<ClassId> out;
    for (const Value* v : node.inputs())
        if (v) out.push_back(class_of(*v));
    if (has_nested(node))
        for (const Value* v : captured_values(node)) out.push_back(class_of(*v));
    return out;
}

bool EGraph::depends(ClassId from, const std::vector<ClassId>& targets) const {
    std::vector<bool> seen(classes_.size(), false);
    std::vector<ClassId> todo = {find(from)};
    while (!todo.empty()) {
        ClassId c = todo.back();
        todo.pop_back();
        if (seen[size_t(c)]) continue;
        seen[size_t(c)] = true;
        for (ClassId t : targets)
            if (find(t) == c) return true;
        for (const Value* member : members(c)) {
            if (!member->node()) continue;
            for (ClassId needed : needs(*member->node()))
                if (!weight_only(needed)) todo.push_back(needed);
        }
    }
    return false;
}

}  // namespace tessera
