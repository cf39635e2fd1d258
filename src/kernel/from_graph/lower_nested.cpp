#include "kernel/from_graph/lower_nested.h"

#include <algorithm>
#include <map>
#include <set>

#include "rewrite/edit.h"

namespace tessera {
namespace {

bool is_inside(const Graph& graph, const Graph& around) {
    for (const Graph* g = &graph; g; g = g->outer())
        if (g == &around) return true;
    return false;
}

bool draws(const Graph& graph) {
    for (const auto& node : graph.nodes()) {
        if (node->is(Trait::Random)) return true;
        for (const auto& [name, attr] : node->attrs())
            if (auto* inner = std::get_if<GraphPtr>(&attr); inner && *inner && draws(**inner)) return true;
    }
    return false;
}

// What nodes and outputs use, in the graph and in all that are nested in it, becomes what `inside` makes of it.
template <typename F>
void replace_used(Graph& graph, const F& inside) {
    for (const auto& node : graph.nodes()) {
        for (size_t i = 0; i < node->inputs().size(); ++i)
            if (Value* v = node->input(i); v && inside(v) != v) graph.set_input(*node, i, inside(v));
        for (auto& [name, attr] : node->attrs())
            if (auto* inner = std::get_if<GraphPtr>(&attr); inner && *inner) replace_used(**inner, inside);
    }
    for (size_t i = 0; i < graph.outputs().size(); ++i)
        if (Value* v = graph.outputs()[i]; inside(v) != v) graph.set_output(i, inside(v));
}

// A copy of a nested graph in which everything from around it is an input, or a constant of its own.
class Closing {
  public:
    explicit Closing(const Graph& nested) : copy_(nested.clone()) {
        replace_used(*copy_, [this](Value* v) { return inside(v); });
        name_sizes();
    }
    std::shared_ptr<const Graph> graph() { return std::shared_ptr<const Graph>(std::move(copy_)); }
    std::vector<const Value*> captured() const { return captured_; }

  private:
    Value* inside(Value* v) {
        if (is_inside(v->graph(), *copy_)) return v;
        auto [at, fresh] = own_.try_emplace(v, nullptr);
        if (!fresh) return at->second;
        // Under a name of its own: one without would be the constant around it again.
        if (v->is_constant()) return at->second = copy_->constant(*v->tensor(), v->name() + ".inside");
        at->second = copy_->add_input(v->name(), v->type());
        captured_.push_back(v);
        return at->second;
    }

    // A size of an input that is computed from sizes that no input has is a size of its own.
    void name_sizes() {
        std::set<std::string> known;
        for (const auto& v : copy_->inputs())
            for (const Dim& d : dims_of(*v))
                if (d.is(ExprKind::Var)) known.insert(d.node().name);
        for (const auto& v : copy_->inputs()) {
            std::vector<Dim> dims = dims_of(*v);
            bool changed = false;
            for (size_t i = 0; i < dims.size(); ++i) {
                const auto names = free_symbols(dims[i]);
                if (std::all_of(names.begin(), names.end(), [&](const auto& n) { return known.contains(n); })) continue;
                dims[i] = symbol(fmt::format("{}.d{}", v->name(), i));
                changed = true;
            }
            if (changed) v->set_type(Type(v->type().tensor().dtype, Shape(std::move(dims))));
        }
    }

    static std::vector<Dim> dims_of(const Value& v) {
        return v.type().is_tensor() && v.type().tensor().shape.ranked() ? v.type().tensor().shape.dims()
                                                                        : std::vector<Dim>();
    }

    std::unique_ptr<Graph> copy_;
    std::map<Value*, Value*> own_;
    std::vector<const Value*> captured_;
};

// Passes share constants with the graphs around; a program is whole without these.
class OwnConstants {
  public:
    explicit OwnConstants(Program& program) : graph_(*program.graph) {
        replace_used(graph_, [this](Value* v) { return inside(v); });
        for (ProgramBuffer& b : program.buffers)
            if (auto at = own_.find(b.value); at != own_.end()) b.value = at->second;
    }

  private:
    Value* inside(Value* v) {
        if (!v->is_constant() || is_inside(v->graph(), graph_)) return v;
        auto [at, fresh] = own_.try_emplace(v, nullptr);
        if (fresh) at->second = graph_.constant(*v->tensor(), v->name() + ".inside");
        return at->second;
    }

    Graph& graph_;
    std::map<const Value*, Value*> own_;
};

Status lower_graph(const Graph& nested, Program& program, bool always, LowerOptions options, const Node& node) {
    if (is_offloaded(node)) options.offloading.reset();  // there was no code for it
    Closing closed(nested);
    NestedProgram made{&nested, closed.captured(), nullptr};
    Program inner = TRY(from_graph_apart(closed.graph(), options));
    const bool computes = std::any_of(inner.steps.begin(), inner.steps.end(),
                                      [](const Step& s) { return std::holds_alternative<KernelStep>(s); });
    if (!computes && inner.nested.empty() && !always) return {};
    OwnConstants{inner};
    made.program = std::make_shared<Program>(std::move(inner));
    program.nested.push_back(std::move(made));
    return {};
}

bool only_tensors(const Node& node) {
    for (const Value* v : node.inputs())
        if (v && !v->type().is_tensor()) return false;
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->type().is_tensor()) return false;
    return true;
}

// A body that runs again and again does so over tensors; branches may give anything.
bool steerable(const Node& node) {
    auto form = node.op().control ? node.op().control(node.view()) : std::nullopt;
    return form && (form->graphs.size() == 2 || only_tensors(node));
}

void collect(Program& program, std::vector<Kernel>& all, std::map<std::string, size_t>& known) {
    std::vector<size_t> place;
    for (const Kernel& kernel : program.kernels) {
        auto [at, fresh] = known.try_emplace(to_string(kernel), all.size());
        if (fresh) all.push_back(kernel);
        place.push_back(at->second);
    }
    for (KernelStep& step : program.prepare) step.kernel = place[step.kernel];
    for (Step& step : program.steps)
        if (auto* kernel = std::get_if<KernelStep>(&step)) kernel->kernel = place[kernel->kernel];
    for (NestedProgram& n : program.nested) collect(*n.program, all, known);
}

void hand_out(Program& program, const std::vector<Kernel>& all) {
    program.kernels = all;
    for (NestedProgram& n : program.nested) hand_out(*n.program, all);
}

}  // namespace

Status lower_nested(Program& program, const LowerOptions& options) {
    for (Step& step : program.steps) {
        auto* host = std::get_if<HostStep>(&step);
        if (!host || !has_nested(*host->node)) continue;
        std::vector<const Graph*> graphs;
        for (const auto& [name, attr] : host->node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr); nested && *nested) graphs.push_back(nested->get());
        const bool random = std::any_of(graphs.begin(), graphs.end(), [](const Graph* g) { return draws(*g); });
        const bool steered = !random && steerable(*host->node);
        for (const Graph* g : graphs)
            if (!draws(*g)) TRY(lower_graph(*g, program, steered, options, *host->node));
        if (steered) step = ControlStep{host->node, host->inputs, host->outputs};
    }
    return {};
}

void share_kernels(Program& program) {
    if (program.nested.empty()) return;
    std::vector<Kernel> all;
    std::map<std::string, size_t> known;
    collect(program, all, known);
    hand_out(program, all);
}

}  // namespace tessera
