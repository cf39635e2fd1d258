#include "graph/graph.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"
#include "graph/infer.h"
#include "graph/names.h"

namespace tessera {
namespace {

constexpr int64_t kSharedUpTo = 64 << 10;  // bytes; larger constants are shared only when they are the same memory

uint64_t content_key(const Tensor& t) {
    return t.bytes() > kSharedUpTo || !t.data() ? reinterpret_cast<uintptr_t>(t.data()) : t.content_hash();
}

template <typename F>
void each_nested(const Node& node, F f) {
    for (const auto& [name, attr] : node.attrs())
        if (auto* g = std::get_if<GraphPtr>(&attr)) f(**g);
}

// Every use in `g` and the graphs nested in it of a value from outside `g`.
template <typename F>
void each_capture(Graph& g, F f) {
    std::vector<Graph*> open = {&g};
    std::unordered_set<const Graph*> inside;
    while (!open.empty()) {
        Graph* current = open.back();
        open.pop_back();
        inside.insert(current);
        for (const auto& node : current->nodes()) {
            for (size_t i = 0; i < node->inputs().size(); ++i)
                if (Value* v = node->inputs()[i]; v && !inside.contains(&v->graph())) f(v, Use{current, node.get(), i});
            each_nested(*node, [&](Graph& n) { open.push_back(&n); });
        }
        for (size_t i = 0; i < current->outputs().size(); ++i)
            if (Value* v = current->outputs()[i]; !inside.contains(&v->graph())) f(v, Use{current, nullptr, i});
    }
}

// Whether a size of an input of the graph, or of one around it, is called <value>.d0 or the like.
bool names_input_size(const Graph& graph, std::string_view value) {
    const std::string prefix = fmt::format("{}.d", value);
    auto names = [&](const Dim& d) {
        if (d.as_int()) return false;
        const std::vector<std::string> symbols = free_symbols(d);
        return std::any_of(symbols.begin(), symbols.end(), [&](const auto& s) { return s.starts_with(prefix); });
    };
    for (const Graph* g = &graph; g; g = g->outer())
        for (const auto& v : g->inputs()) {
            if (!v->type().is_tensor()) continue;
            const Shape& shape = v->type().tensor().shape;
            if (std::any_of(shape.begin(), shape.end(), names)) return true;
        }
    return false;
}

// As inference reads a node: sizes that only a run finds are called after its results (OpView::fresh), and no size of
// an input is called so.
OpView view_to_infer(const Node& node) {
    OpView view = node.view();
    std::vector<std::string> names;
    for (size_t i = 0; i < node.output_count(); ++i) {
        names.push_back(node.output(i)->name());
        while (names_input_size(node.graph(), names.back())) names.back() += "_";
    }
    view.with_output_names(std::move(names));
    return view;
}

}  // namespace

std::string Node::where() const {
    std::string file = graph_->outermost().info().source;
    std::string label = name_.empty() && !outputs_.empty() ? fmt::format("the node giving \"{}\"", outputs_[0]->name())
                                                           : fmt::format("node \"{}\"", name_);
    std::string_view op = op_->onnx.name.empty() ? op_->name : op_->onnx.name;
    return file.empty() ? fmt::format("{} ({})", label, op) : fmt::format("{}: {} ({})", file, label, op);
}

OpView Node::view() const {
    std::vector<Type> types;
    std::vector<const Tensor*> values;
    std::vector<const std::vector<Expr>*> contents;
    for (const Value* v : inputs_) {
        types.push_back(v ? v->type() : Type());
        values.push_back(v && v->is_constant() ? &*v->tensor() : nullptr);
        contents.push_back(v && v->contents() ? &*v->contents() : nullptr);
    }
    std::vector<Type> out;
    std::vector<std::string> names;
    for (const auto& v : outputs_) {
        out.push_back(v->type());
        names.push_back(v->name());
    }
    OpView view(*op_, attrs_, std::move(types), outputs_.size());
    view.with_values(std::move(values)).with_contents(std::move(contents)).with_outputs(std::move(out));
    view.with_output_names(std::move(names)).with_wanted(given_).at(where());
    return view;
}

Graph& Graph::outermost() {
    Graph* g = this;
    while (g->outer_) g = g->outer_;
    return *g;
}

bool Graph::name_taken(std::string_view name) const { return find_value(name) != nullptr; }

Value* Graph::find_value(std::string_view name) const {
    std::string key(name);
    for (const Graph* g = this; g; g = g->outer_)
        if (auto it = g->by_name_.find(key); it != g->by_name_.end()) return it->second;
    return nullptr;
}

std::string Graph::unique_name(std::string wanted) {
    if (!wanted.empty() && !name_taken(wanted)) return wanted;
    if (generated_number(wanted)) wanted.clear();
    Graph& top = outermost();
    for (;;) {
        std::string name = fmt::format("{}{}", wanted.empty() ? "v" : wanted + "_", top.next_name_++);
        if (!name_taken(name)) return name;
    }
}

void Graph::claim(Value* v) {
    v->graph_ = this;
    v->name_ = unique_name(std::move(v->name_));
    by_name_[v->name_] = v;
    // Numbers start behind those that were given as names: no generated name is ever one that was there before.
    if (auto n = generated_number(v->name_)) outermost().next_name_ = std::max(outermost().next_name_, *n + 1);
}

void Graph::add_use(Value* v, Use use) {
    if (v) v->uses_.push_back(use);
}

void Graph::drop_use(Value* v, Use use) {
    if (!v) return;
    auto it = std::find(v->uses_.begin(), v->uses_.end(), use);
    if (it == v->uses_.end()) return;
    *it = v->uses_.back();
    v->uses_.pop_back();
}

Value* Graph::add_input(std::string name, Type type, std::optional<Tensor> fallback) {
    auto v = std::make_unique<Value>();
    v->kind_ = Value::Kind::Input;
    v->type_ = std::move(type);
    v->name_ = std::move(name);
    v->index_ = inputs_.size();
    v->tensor_ = std::move(fallback);
    claim(v.get());
    inputs_.push_back(std::move(v));
    return inputs_.back().get();
}

Value* Graph::constant(Tensor tensor, std::string name) {
    uint64_t key = content_key(tensor);
    for (Graph* g = this; g; g = g->outer_) {
        // equal_range would walk over all that have these elements, which may be thousands.
        for (auto it = g->by_content_.find(key); it != g->by_content_.end() && it->first == key; ++it) {
            if (!it->second->tensor_->same_bits(tensor)) continue;
            if (name.empty() || it->second->name_ == name) return it->second;
            tensor = *it->second->tensor_;  // another name for the same memory
            break;
        }
    }
    auto v = std::make_unique<Value>();
    v->kind_ = Value::Kind::Constant;
    v->type_ = Type(tensor.dtype(), Shape(tensor.sizes()));
    v->name_ = std::move(name);
    v->tensor_ = std::move(tensor);
    claim(v.get());
    by_content_.emplace(key, v.get());
    constants_.push_back(std::move(v));
    return constants_.back().get();
}

GraphPtr Graph::nested(std::string name) { return std::make_shared<Graph>(std::move(name), this); }

Result<Node*> Graph::add(NodeSpec spec) {
    auto node = std::make_unique<Node>();
    node->op_ = spec.op;
    node->name_ = std::move(spec.name);
    node->graph_ = this;
    node->inputs_ = std::move(spec.inputs);
    while (!node->inputs_.empty() && !node->inputs_.back()) node->inputs_.pop_back();
    node->attrs_ = std::move(spec.attrs);
    node->metadata_ = std::move(spec.metadata);
    node->given_ = spec.given.empty() ? std::vector<bool>(spec.outputs, true) : std::move(spec.given);
    for (size_t i = 0; i < spec.outputs; ++i) {
        auto v = std::make_unique<Value>();
        v->node_ = node.get();
        v->index_ = i;
        v->graph_ = this;
        v->name_ = unique_name(i < spec.output_names.size() ? spec.output_names[i] : "");
        node->outputs_.push_back(std::move(v));
    }
    OpView view = view_to_infer(*node);
    Types types = TRY(infer_types(view));
    view.with_outputs(types);
    for (size_t i = 0; i < types.size(); ++i) {
        Value* v = node->outputs_[i].get();
        v->type_ = types[i];
        if (types[i].is_tensor() && types[i].tensor().shape.ranked()) v->contents_ = infer_contents(view, i);
        claim(v);
    }
    for (size_t i = 0; i < node->inputs_.size(); ++i) add_use(node->inputs_[i], {this, node.get(), i});
    nodes_.push_back(std::move(node));
    return nodes_.back().get();
}

void Graph::add_output(Value* value, std::string name) {
    add_use(value, {this, nullptr, outputs_.size()});
    outputs_.push_back(value);
    output_names_.push_back(name.empty() ? value->name() : std::move(name));
}

void Graph::set_output(size_t i, Value* value) {
    drop_use(outputs_[i], {this, nullptr, i});
    add_use(value, {this, nullptr, i});
    outputs_[i] = value;
}

void Graph::set_input(Node& node, size_t i, Value* value) {
    if (node.inputs_.size() <= i) node.inputs_.resize(i + 1, nullptr);
    drop_use(node.inputs_[i], {node.graph_, &node, i});
    add_use(value, {node.graph_, &node, i});
    node.inputs_[i] = value;
    while (!node.inputs_.empty() && !node.inputs_.back()) node.inputs_.pop_back();
}

void Graph::replace_uses(Value* from, Value* to) {
    if (from == to) return;
    std::vector<Use> uses = from->uses_;
    for (const Use& use : uses) use.node ? set_input(*use.node, use.index, to) : use.graph->set_output(use.index, to);
}

void Graph::erase(Node& node) {
    for (const auto& v : node.outputs_) {
        CHECK(v->uses_.empty(), "{} is still used", v->name());
        by_name_.erase(v->name_);
    }
    for (size_t i = 0; i < node.inputs_.size(); ++i) drop_use(node.inputs_[i], {this, &node, i});
    each_nested(node, [&](Graph& g) { each_capture(g, [&](Value* v, Use use) { drop_use(v, use); }); });
    auto it = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& n) { return n.get() == &node; });
    CHECK(it != nodes_.end());
    nodes_.erase(it);
}

void Graph::disconnect(Node& node) {
    for (const auto& v : node.outputs_) CHECK(v->uses_.empty(), "{} is still used", v->name());
    for (size_t i = 0; i < node.inputs_.size(); ++i) drop_use(node.inputs_[i], {this, &node, i});
    node.inputs_.clear();
    each_nested(node, [&](Graph& g) { each_capture(g, [&](Value* v, Use use) { drop_use(v, use); }); });
    node.attrs_.clear();
}

size_t Graph::erase_unused() {
    size_t erased = 0;
    std::vector<std::unique_ptr<Node>> kept;
    for (size_t i = nodes_.size(); i-- > 0;) {
        Node& node = *nodes_[i];
        bool used =
            std::any_of(node.outputs_.begin(), node.outputs_.end(), [](const auto& v) { return !v->uses_.empty(); });
        if (used) {
            kept.push_back(std::move(nodes_[i]));
            continue;
        }
        for (const auto& v : node.outputs_) by_name_.erase(v->name_);
        for (size_t k = 0; k < node.inputs_.size(); ++k) drop_use(node.inputs_[k], {this, &node, k});
        each_nested(node, [&](Graph& g) { each_capture(g, [&](Value* v, Use use) { drop_use(v, use); }); });
        ++erased;
    }
    std::reverse(kept.begin(), kept.end());
    nodes_ = std::move(kept);
    // All at once: of constants with the same elements there may be thousands.
    std::erase_if(by_content_, [](const auto& entry) { return entry.second->uses_.empty(); });
    erased += std::erase_if(constants_, [&](const auto& v) {
        if (!v->uses_.empty()) return false;
        by_name_.erase(v->name_);
        return true;
    });
    return erased;
}

void Graph::drop_content(const Value& constant) {
    const uint64_t key = content_key(*constant.tensor_);
    for (auto it = by_content_.find(key); it != by_content_.end() && it->first == key; ++it)
        if (it->second == &constant) {
            by_content_.erase(it);
            return;
        }
}

void Graph::move_constant(const Value& value, Tensor tensor) {
    Value* own = find_value(value.name());
    CHECK(own == &value && own->is_constant(), "\"{}\" is no constant of this graph", value.name());
    CHECK(own->tensor_->dtype() == tensor.dtype() && own->tensor_->sizes() == tensor.sizes(),
          "constant \"{}\" would be another", value.name());
    drop_content(*own);
    own->tensor_ = std::move(tensor);
}

void Graph::rename(Value& value, std::string name) {
    by_name_.erase(value.name_);
    value.name_ = std::move(name);
    claim(&value);
}

void Graph::sort() {
    std::unordered_map<const Node*, size_t> place;
    place.reserve(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) place.emplace(nodes_[i].get(), i);
    std::vector<size_t> waiting(nodes_.size());    // by place: for how many inputs
    std::vector<std::pair<size_t, size_t>> needs;  // the place that is needed, and by which
    auto depend = [&](size_t at, const Value* v) {
        if (!v || &v->graph() != this || !v->node()) return;
        needs.emplace_back(place.at(v->node()), at);
        ++waiting[at];
    };
    for (size_t i = 0; i < nodes_.size(); ++i) {
        for (const Value* v : nodes_[i]->inputs_) depend(i, v);
        each_nested(*nodes_[i], [&](Graph& g) { each_capture(g, [&](Value* v, Use) { depend(i, v); }); });
    }
    std::sort(needs.begin(), needs.end());
    std::vector<size_t> ready;  // a min-heap by old position keeps the sort stable
    auto later = std::greater<size_t>();
    for (size_t i = 0; i < nodes_.size(); ++i)
        if (!waiting[i]) ready.push_back(i);
    std::make_heap(ready.begin(), ready.end(), later);
    std::vector<std::unique_ptr<Node>> sorted;
    sorted.reserve(nodes_.size());
    while (!ready.empty()) {
        std::pop_heap(ready.begin(), ready.end(), later);
        size_t i = ready.back();
        ready.pop_back();
        sorted.push_back(std::move(nodes_[i]));
        auto it = std::lower_bound(needs.begin(), needs.end(), std::pair<size_t, size_t>(i, 0));
        for (; it != needs.end() && it->first == i; ++it)
            if (--waiting[it->second] == 0) {
                ready.push_back(it->second);
                std::push_heap(ready.begin(), ready.end(), later);
            }
    }
    CHECK(sorted.size() == nodes_.size(), "the graph has a cycle");
    nodes_ = std::move(sorted);
}

void Graph::sort_canonically() {
    std::unordered_map<const Node*, size_t> place;
    std::unordered_map<const Value*, size_t> constant_place;
    std::vector<Node*> open;
    std::unordered_map<const Node*, std::vector<Value*>> needs;
    auto visit = [&](Value* v) {
        if (!v || &v->graph() != this) return;
        if (v->is_constant()) constant_place.emplace(v, constant_place.size());
        if (v->node()) open.push_back(v->node());
    };
    // Depth first from the outputs: a node gets its place once all that it needs has one.
    auto settle = [&] {
        while (!open.empty()) {
            Node* node = open.back();
            if (place.contains(node)) {
                open.pop_back();
                continue;
            }
            auto [it, first] = needs.try_emplace(node);
            if (first) {
                it->second.assign(node->inputs_.rbegin(), node->inputs_.rend());
                each_nested(*node,
                            [&](Graph& g) { each_capture(g, [&](Value* v, Use) { needs[node].push_back(v); }); });
            }
            std::vector<Value*>& left = needs[node];
            if (left.empty()) {
                place.emplace(node, place.size());
                open.pop_back();
                continue;
            }
            Value* next = left.back();
            left.pop_back();
            visit(next);
        }
    };
    for (Value* v : outputs_) {
        visit(v);
        settle();
    }
    for (const auto& node : nodes_) {
        open.push_back(node.get());
        settle();
    }
    std::stable_sort(nodes_.begin(), nodes_.end(),
                     [&](const auto& a, const auto& b) { return place[a.get()] < place[b.get()]; });
    auto constant_at = [&](const auto& v) {
        auto it = constant_place.find(v.get());
        return it == constant_place.end() ? constant_place.size() : it->second;
    };
    std::stable_sort(constants_.begin(), constants_.end(),
                     [&](const auto& a, const auto& b) { return constant_at(a) < constant_at(b); });
    for (const auto& node : nodes_) each_nested(*node, [](Graph& g) { g.sort_canonically(); });
}

Status Graph::infer_again() {
    for (const auto& node : nodes_) {
        Status nested;
        each_nested(*node, [&](Graph& g) {
            if (nested.ok()) nested = g.infer_again();
        });
        TRY(std::move(nested));
        OpView view = view_to_infer(*node);
        Types types = TRY(infer_types(view));
        view.with_outputs(types);
        for (size_t i = 0; i < types.size(); ++i) {
            node->outputs_[i]->type_ = types[i];
            node->outputs_[i]->contents_.reset();
            if (types[i].is_tensor() && types[i].tensor().shape.ranked())
                node->outputs_[i]->contents_ = infer_contents(view, i);
        }
    }
    return {};
}

size_t Graph::node_count() const {
    size_t n = nodes_.size();
    for (const auto& node : nodes_) each_nested(*node, [&](const Graph& g) { n += g.node_count(); });
    return n;
}

void Graph::copy_into(Graph& to, std::unordered_map<const Value*, Value*>& map) const {
    to.info_ = info_;
    to.doc_string = doc_string;
    to.metadata = metadata;
    for (const auto& v : inputs_) {
        Value* copy = map[v.get()] = to.add_input(v->name_, v->type_, v->tensor_);
        copy->contents_ = v->contents_;
    }
    for (const auto& v : constants_) map[v.get()] = to.constant(*v->tensor_, v->name_);
    auto mapped = [&](Value* v) {
        auto it = map.find(v);
        return it == map.end() ? v : it->second;  // a value from around the graph that is copied
    };
    for (const auto& node : nodes_) {
        auto copy = std::make_unique<Node>();
        copy->op_ = node->op_;
        copy->name_ = node->name_;
        copy->graph_ = &to;
        copy->metadata_ = node->metadata_;
        copy->given_ = node->given_;
        copy->attrs_ = node->attrs_;
        for (size_t i = 0; i < node->inputs_.size(); ++i) {
            Value* v = node->inputs_[i] ? mapped(node->inputs_[i]) : nullptr;
            copy->inputs_.push_back(v);
            to.add_use(v, {&to, copy.get(), i});
        }
        for (auto& [name, attr] : copy->attrs_)
            if (auto* g = std::get_if<GraphPtr>(&attr)) {
                GraphPtr nested = to.nested((*g)->name_);
                (*g)->copy_into(*nested, map);
                *g = std::move(nested);
            }
        for (const auto& v : node->outputs_) {
            auto out = std::make_unique<Value>();
            out->type_ = v->type_;
            out->name_ = v->name_;
            out->node_ = copy.get();
            out->index_ = v->index_;
            out->contents_ = v->contents_;
            to.claim(out.get());
            map[v.get()] = out.get();
            copy->outputs_.push_back(std::move(out));
        }
        to.nodes_.push_back(std::move(copy));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) to.add_output(mapped(outputs_[i]), output_names_[i]);
}

std::unique_ptr<Graph> Graph::clone() const {
    auto copy = std::make_unique<Graph>(name_, outer_);
    std::unordered_map<const Value*, Value*> map;
    copy_into(*copy, map);
    return copy;
}

}  // namespace tessera
