#include "graph/infer.h"
#include "graph/refine.h"
#include "rewrite/edit.h"
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

// The sizes that a state has before the first iteration, and a name for each that may change.
Type with_own_sizes(const Type& t, const std::string& name) {
    Shape shape = t.tensor().shape;
    for (int64_t d = 0; d < shape.rank(); ++d) shape[d] = symbol(fmt::format("{}.d{}", name, d));
    return Type(t.tensor().dtype, shape);
}

// A body that does not say what it takes gets what goes in. That holds for a state if it comes out as it went in, with
// the same sizes or at least of the same rank.
Changed refine_body(const Node& node, const ControlForm& form, Graph& body) {
    const size_t before = form.numbered ? 2 : 0, states = form.states;
    std::vector<size_t> open;
    for (size_t i = before; i < body.inputs().size(); ++i)
        if (unranked(body.inputs()[i]->type())) open.push_back(i);
    if (open.empty()) return false;
    auto given = [&](size_t i) -> std::optional<Type> {
        const size_t input = form.first + i - before;
        if (input >= node.inputs().size() || !node.input(input)) return {};
        const Type& type = node.input(input)->type();
        if (!type.is_tensor() || unranked(type) || type.tensor().dtype != body.inputs()[i]->type().tensor().dtype)
            return {};
        if (i - before < states) return type;
        const Shape& shape = type.tensor().shape;
        if (shape.rank() == 0) return {};
        return Type(type.tensor().dtype, Shape(std::vector<Dim>(shape.begin() + 1, shape.end())));
    };
    for (bool same_sizes : {true, false}) {
        Known known(body);
        bool holds = true;
        for (size_t i : open) {
            auto type = given(i);
            if (type && !same_sizes && i - before < states) type = with_own_sizes(*type, body.inputs()[i]->name());
            if (type) body.inputs()[i]->set_type(*type);
            holds &= type.has_value();
        }
        if (holds) infer_graph(body);
        for (size_t i : open) {
            if (!holds || i - before >= states) continue;
            const Type &in = body.inputs()[i]->type(),
                       &out = body.outputs()[i - before + (form.numbered ? 1 : 0)]->type();
            holds = out.is_tensor() && !unranked(out) && out.tensor().dtype == in.tensor().dtype &&
                    (same_sizes ? out == in : out.tensor().shape.rank() == in.tensor().shape.rank());
        }
        if (holds) return true;
        known.restore();
    }
    return false;
}

Changed refine_bodies(const Node& node) {
    if (!node.op().control) return false;
    const auto form = node.op().control(node.view());
    if (!form || form->graphs.size() != 1) return false;
    for (const auto& [_, attr] : node.attrs())
        if (auto* nested = std::get_if<GraphPtr>(&attr); nested && nested->get() == form->graphs[0])
            return refine_body(node, *form, **nested);
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
