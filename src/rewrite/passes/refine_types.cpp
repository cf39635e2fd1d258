#include <set>

#include "graph/infer.h"
#include "graph/refine.h"
#include "rewrite/edit.h"
#include "rewrite/fix_sizes.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

bool same_contents(const std::optional<std::vector<Expr>>& a, const std::optional<std::vector<Expr>>& b) {
    return a.has_value() == b.has_value() && (!a || *a == *b);
}

// Better known, unless that shows that a user would fail.
Changed refine_value(Value& v, const Type& type, const OpView& view) {
    auto contents = v.contents();
    if (type.is_tensor() && type.tensor().shape.ranked()) contents = infer_contents(view, v.index());
    if (type == v.type() && same_contents(contents, v.contents())) return false;
    Type type_before = v.type();
    auto contents_before = v.contents();
    v.set_type(type);
    v.set_contents(std::move(contents));
    if (users_agree(v)) return true;
    v.set_type(std::move(type_before));
    v.set_contents(std::move(contents_before));
    return false;
}

Changed infer_graph(Graph& graph);

// What is known of all values of a graph, to go back to.
class Known {
  public:
    explicit Known(Graph& graph) {
        for (Graph* g : all_graphs(graph)) {
            for (const auto& v : g->inputs()) add(*v);
            for (const auto& node : g->nodes())
                for (size_t i = 0; i < node->output_count(); ++i) add(*node->output(i));
        }
    }

    void restore() {
        for (auto& [v, type, contents] : all_) {
            v->set_type(std::move(type));
            v->set_contents(std::move(contents));
        }
    }

  private:
    void add(Value& v) { all_.push_back({&v, v.type(), v.contents()}); }

    struct One {
        Value* value;
        Type type;
        std::optional<std::vector<Expr>> contents;
    };
    std::vector<One> all_;
};

bool unranked(const Type& t) { return t.is_tensor() && !t.tensor().shape.ranked(); }

// What the body of a loop takes: states, then slices of sequences. Assumes of each that it has the sizes that go in,
// and of a state that it keeps them; inference through the body then tells which sizes of states do not stay.
class BodyInputs {
  public:
    BodyInputs(const Node& node, const ControlForm& form, Graph& body)
        : node_(node), form_(form), body_(body), before_(form.numbered ? 2 : 0) {}

    // With the names that the body has for sizes, where it does not need them, replaced; else without.
    Changed refine() {
        find_open();
        if (open_.empty() && names_.empty()) return false;
        if (!names_.empty() && assume(true)) return true;
        return !open_.empty() && assume(false);
    }

  private:
    // One that does not say its rank, or says sizes that it cannot have.
    struct Open {
        size_t input;
        Type type;  // as it is assumed
    };

    bool is_state(size_t i) const { return i - before_ < form_.states; }

    std::optional<Type> given(size_t i) const {
        const size_t input = form_.first + i - before_;
        if (input >= node_.inputs().size() || !node_.input(input)) return {};
        const Type &type = node_.input(input)->type(), &own = body_.inputs()[i]->type();
        if (!type.is_tensor() || unranked(type) || !own.is_tensor() || type.tensor().dtype != own.tensor().dtype)
            return {};
        if (is_state(i)) return type;
        const Shape& shape = type.tensor().shape;
        if (shape.rank() == 0) return {};
        return Type(type.tensor().dtype, Shape(std::vector<Dim>(shape.begin() + 1, shape.end())));
    }

    void find_open() {
        std::set<std::string> outside;
        for (const Value* v : node_.inputs())
            if (v && v->type().is_tensor())
                for (const Dim& d : v->type().tensor().shape)
                    for (std::string& name : free_symbols(d)) outside.insert(std::move(name));
        std::set<std::string> ambiguous;
        for (size_t i = before_; i < body_.inputs().size(); ++i) {
            const Type& own = body_.inputs()[i]->type();
            const auto type = given(i);
            if (unranked(own) || (type && contradicted(i, own, *type))) {
                open_.push_back({i, type.value_or(own)});
            } else if (type && type->tensor().rank() == own.tensor().rank()) {
                for (int64_t d = 0; d < own.tensor().rank(); ++d) {
                    const Dim &declared = own.tensor().shape[d], &size = type->tensor().shape[d];
                    if (!declared.is(ExprKind::Var) || outside.contains(declared.node().name)) continue;
                    auto [at, fresh] = names_.try_emplace(declared.node().name, size);
                    if (!fresh && !(at->second == size)) ambiguous.insert(at->first);
                    if (is_state(i)) named_.push_back(i);
                }
            }
        }
        for (const std::string& name : ambiguous) names_.erase(name);
    }

    // Whether what goes in, or what an iteration makes of a state, has another rank or constant sizes than declared.
    bool contradicted(size_t i, const Type& own, const Type& type) const {
        auto differs = [&](const Type& t) {
            if (!t.is_tensor() || unranked(t)) return false;
            if (t.tensor().rank() != own.tensor().rank()) return true;
            for (int64_t d = 0; d < own.tensor().rank(); ++d) {
                const auto declared = own.tensor().shape[d].as_int(), size = t.tensor().shape[d].as_int();
                if (declared && size && *declared != *size) return true;
            }
            return false;
        };
        return differs(type) || (is_state(i) && differs(outcome(i)));
    }

    const Type& outcome(size_t i) const { return body_.outputs()[i - before_ + (form_.numbered ? 1 : 0)]->type(); }

    bool assume(bool by_names) {
        for (;;) {
            Known known(body_);
            if (by_names) fix_sizes(body_, names_);
            for (const Open& o : open_) {
                if (unranked(o.type)) return false;
                body_.inputs()[o.input]->set_type(o.type);
            }
            infer_graph(body_);
            const std::optional<bool> stays = check(by_names);
            if (stays == true) return true;
            known.restore();
            if (!stays) return false;
        }
    }

    // Whether what was assumed holds. False: less is assumed now. Nothing: no more can be known.
    std::optional<bool> check(bool by_names) {
        for (size_t i : named_)
            if (by_names && !(outcome(i) == body_.inputs()[i]->type())) return std::nullopt;
        bool holds = true;
        for (Open& o : open_) {
            if (!is_state(o.input)) continue;
            const Type& out = outcome(o.input);
            if (!out.is_tensor() || unranked(out) || out.tensor().dtype != o.type.tensor().dtype ||
                out.tensor().rank() != o.type.tensor().rank())
                return std::nullopt;
            TensorType type = o.type.tensor();
            for (int64_t d = 0; d < type.rank(); ++d) {
                const Dim changes = symbol(fmt::format("{}.d{}", body_.inputs()[o.input]->name(), d));
                if (type.shape[d] == out.tensor().shape[d] || type.shape[d] == changes) continue;
                type.shape[d] = changes;
                holds = false;
            }
            o.type = type;
        }
        return holds;
    }

    const Node& node_;
    const ControlForm& form_;
    Graph& body_;
    const size_t before_;
    std::vector<Open> open_;
    std::vector<size_t> named_;  // states whose sizes have names of the body's own
    Bindings names_;             // and what goes in there
};

Changed refine_bodies(const Node& node) {
    if (!node.op().control) return false;
    const auto form = node.op().control(node.view());
    if (!form || form->graphs.size() != 1) return false;
    for (const auto& [_, attr] : node.attrs())
        if (auto* nested = std::get_if<GraphPtr>(&attr); nested && nested->get() == form->graphs[0])
            return BodyInputs(node, *form, **nested).refine();
    return false;
}

Changed infer_graph(Graph& graph) {
    Changed changed = false;
    for (const auto& node : graph.nodes()) {
        changed |= refine_bodies(*node);
        for (const auto& [_, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) changed |= infer_graph(**nested);
        OpView view = node->view();
        auto types = infer_types(view);
        if (!types.ok()) continue;  // it was possible before, so this is a fault that only a run would find
        types->resize(node->output_count());
        for (size_t i = 0; i < types->size(); ++i) {
            Value& v = *node->output(i);
            // What was declared stays where inference can only give a symbol of its own.
            if (auto type = refine((*types)[i], v.type(), v.name()))
                (*types)[i] = std::move(*type);
            else
                (*types)[i] = v.type();
        }
        view.with_outputs(*types);
        for (size_t i = 0; i < types->size(); ++i) changed |= refine_value(*node->output(i), (*types)[i], view);
    }
    return changed;
}

}  // namespace

Result<Changed> refine_types(Graph& graph, PassContext&) { return infer_graph(graph); }

}  // namespace tessera
