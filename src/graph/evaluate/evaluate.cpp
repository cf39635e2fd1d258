#include "graph/evaluate/evaluate.h"

#include <algorithm>
#include <unordered_map>

#include "graph/builder.h"
#include "graph/evaluate/bind_inputs.h"
#include "graph/evaluate/evaluate_node.h"
#include "graph/infer.h"

namespace tessera {
namespace {

constexpr int kMaxDepth = 100;               // of nested graphs and expansions within one another
constexpr int64_t kWorkPerNode = 16;         // what a node costs besides its elements
constexpr int64_t kMaxConstantInput = 4096;  // elements of an integer input that an expansion sees as a constant

// The values of one graph while it runs; those of the graphs around it lie behind `outer`.
struct Environment {
    const Environment* outer = nullptr;
    std::unordered_map<const Value*, Datum> values = {};
    const NodeEvaluator::Find* kept = nullptr;  // values that somebody else keeps

    const Datum* find(const Value* v) const {
        for (const Environment* e = this; e; e = e->outer) {
            if (auto found = e->values.find(v); found != e->values.end()) return &found->second;
            if (const Datum* d = e->kept ? (*e->kept)(v) : nullptr) return d;
        }
        return nullptr;
    }
};

// What a graph needs to be walked, found once for all its runs.
struct WalkPlan {
    int level = 0;                                // of expansions at which it was made; it goes when they go
    std::vector<std::vector<const Value*>> dead;  // after node i: values of this graph that nobody uses any more
};

WalkPlan plan_walk(const Graph& graph) {
    std::unordered_map<const Node*, size_t> position;
    for (size_t i = 0; i < graph.nodes().size(); ++i) position[graph.nodes()[i].get()] = i;
    WalkPlan plan;
    plan.dead.resize(graph.nodes().size());
    auto consider = [&](const Value* v, size_t defined) {
        size_t last = defined;
        for (const Use& use : v->uses()) {
            auto at = use.node ? position.find(use.node) : position.end();
            if (at == position.end()) return;  // an output, or used in a nested graph: stays to the end
            last = std::max(last, at->second);
        }
        plan.dead[last].push_back(v);
    };
    if (graph.nodes().empty()) return plan;
    for (const auto& v : graph.inputs()) consider(v.get(), 0);
    for (size_t i = 0; i < graph.nodes().size(); ++i)
        for (size_t k = 0; k < graph.nodes()[i]->output_count(); ++k) consider(graph.nodes()[i]->output(k), i);
    return plan;
}

struct OpCall {
    const OpDef& op;
    const AttrMap& attrs;
    std::vector<const Datum*> inputs;  // null where not given
    size_t outputs;
    std::vector<bool> wanted;
    std::vector<std::string> output_names;
};

class Evaluation {
  public:
    explicit Evaluation(const EvaluateOptions& options, NodeEvaluator::RunNested nested = {})
        : options_(options), nested_(std::move(nested)) {}

    // The graph's outputs; its inputs are in the environment already.
    Result<std::vector<Datum>> walk(const Graph& graph, Environment& env, bool outermost) {
        if (++depth_ > kMaxDepth) return Error(Code::E0109, "graphs nest over {} deep", kMaxDepth);
        auto [plan, fresh] = walks_.try_emplace(&graph);
        if (fresh) {
            plan->second = plan_walk(graph);
            plan->second.level = level_;
        }
        const WalkPlan& walk_plan = plan->second;
        const auto& nodes = graph.nodes();
        for (size_t i = 0; i < nodes.size(); ++i) {
            if (outermost) start(*nodes[i], i, nodes.size());
            Status done = run_node(*nodes[i], env, outermost);
            if (!done.ok()) return std::move(done).error().at(nodes[i]->where());
            for (const Value* v : walk_plan.dead[i]) env.values.erase(v);
            if (outermost) ++done_;
            if (node_ && options_.progress) options_.progress(*node_, done_, total_);
        }
        std::vector<Datum> outputs;
        for (const Value* v : graph.outputs()) outputs.push_back(*TRY(value_of(v, env)));
        --depth_;
        return outputs;
    }

    Result<std::vector<Datum>> call(const OpCall& c, const Environment* env);

    // The outermost node that runs next; progress names it while its nested graphs run.
    void start(const Node& node, size_t done, size_t total) { node_ = &node, done_ = done, total_ = total; }

    Status run_node(const Node& node, Environment& env, bool outermost) {
        TRY(spend(kWorkPerNode));
        OpCall c{node.op(), node.attrs(), {}, node.output_count(), {}, {}};
        for (const Value* v : node.inputs()) c.inputs.push_back(v ? TRY(value_of(v, env)) : nullptr);
        const bool observed = outermost && options_.observe;
        for (size_t i = 0; i < c.outputs; ++i) {
            c.wanted.push_back(node.output_given(i) && (observed || !node.output(i)->uses().empty()));
            c.output_names.push_back(node.output(i)->name());
        }
        std::vector<Datum> results = TRY(call(c, &env));
        for (size_t i = 0; i < c.outputs && i < results.size(); ++i) {
            if (!c.wanted[i]) continue;
            if (outermost && options_.check_sizes) TRY(check_size(*node.output(i), results[i]));
            if (observed) options_.observe(*node.output(i), results[i]);
            env.values[node.output(i)] = std::move(results[i]);
        }
        return {};
    }

    // A value of the outermost graph, held against its type.
    Status check_size(const Value& value, const Datum& d) {
        if (!d.is_tensor() || !value.type().is_tensor() || binds(value.type(), type_of(d), sizes_)) return {};
        return Error(Code::E0411, "\"{}\" is {} at run time, but {} in the model", value.name(), type_of(d),
                     value.type());
    }

    Status spend(int64_t work) {
        if (options_.cancel && options_.cancel->load(std::memory_order_relaxed))
            return Error(Code::E0410, "the run was cancelled");
        if (__builtin_add_overflow(spent_, work, &spent_) || spent_ > options_.max_work) {
            spent_ = options_.max_work;
            return Error(Code::E0408, "this takes more than {} scalar operations", options_.max_work)
                .hint("raise the limit if the model really needs it");
        }
        return {};
    }

    // A counter, scrambled: the same on every machine.
    uint64_t next_random() {
        uint64_t x = options_.seed * 0x9e3779b97f4a7c15ull + ++random_count_ * 0xbf58476d1ce4e5b9ull;
        for (int round = 0; round < 3; ++round) {
            x ^= x >> 31;
            x *= 0x94d049bb133111ebull;
            x ^= x >> 29;
            x += 0x9e3779b97f4a7c15ull;
        }
        return x ^ x >> 32;
    }

    Result<std::vector<Datum>> run_nested(const Graph& nested, std::vector<Datum> inputs, const Environment* outer) {
        if (inputs.size() != nested.inputs().size())
            return Error(Code::E0207, "graph \"{}\" takes {} inputs, but gets {}", nested.name(),
                         nested.inputs().size(), inputs.size());
        if (nested_) {
            const NodeEvaluator::Find find = [&](const Value* v) { return outer ? outer->find(v) : nullptr; };
            if (auto results = nested_(nested, inputs, find)) return std::move(*results);
        }
        Environment env{outer};
        for (size_t i = 0; i < inputs.size(); ++i) env.values[nested.inputs()[i].get()] = std::move(inputs[i]);
        return walk(nested, env, false);
    }

  private:
    Result<const Datum*> value_of(const Value* v, Environment& env) {
        if (const Datum* d = env.find(v)) return d;
        if (v->tensor()) return &(env.values[v] = Datum(*v->tensor()));  // a constant, or an input's default
        return Error(Code::E0203, "value \"{}\" has not been computed", v->name());
    }

    Result<std::vector<Datum>> expand(const OpCall& c, const OpView& view, const Environment* env);

    // A graph that ends takes its plan along, and those of the graphs in it: others may come to lie where they lay.
    void forget(const Graph& graph) {
        walks_.erase(&graph);
        for (const auto& node : graph.nodes())
            for (const auto& [name, attr] : node->attrs())
                if (auto* nested = std::get_if<GraphPtr>(&attr); nested && *nested) forget(**nested);
    }

    const EvaluateOptions& options_;
    const NodeEvaluator::RunNested nested_;
    std::unordered_map<const Graph*, WalkPlan> walks_;
    SymbolValues sizes_;  // of the outermost graph's symbols, where they are checked
    int64_t spent_ = 0;
    uint64_t random_count_ = 0;
    int depth_ = 0, level_ = 0;
    const Node* node_ = nullptr;  // outermost, that runs
    size_t done_ = 0, total_ = 0;
};

class OpContext : public EvalContext {
  public:
    OpContext(Evaluation& evaluation, const OpCall& call, const Environment* env)
        : evaluation_(evaluation), call_(call), env_(env) {}
    const Datum& in(size_t i) const override {
        CHECK(i < call_.inputs.size() && call_.inputs[i], "{}: input {} is not given", call_.op.name, i);
        return *call_.inputs[i];
    }
    Result<std::vector<Datum>> run(const Graph& nested, std::vector<Datum> inputs) override {
        return evaluation_.run_nested(nested, std::move(inputs), env_);
    }
    Status spend(int64_t work) override { return evaluation_.spend(work); }
    uint64_t next_random() override { return evaluation_.next_random(); }

  private:
    Evaluation& evaluation_;
    const OpCall& call_;
    const Environment* env_;
};

Result<std::vector<Datum>> Evaluation::call(const OpCall& c, const Environment* env) {
    std::vector<Type> types;
    std::vector<const Tensor*> tensors;
    for (const Datum* d : c.inputs) {
        types.push_back(d ? type_of(*d) : Type());
        tensors.push_back(d && d->is_tensor() ? &d->tensor() : nullptr);
    }
    OpView view(c.op, c.attrs, std::move(types), c.outputs);
    view.with_values(tensors).with_wanted(c.wanted).with_output_names(c.output_names).made_concrete();
    view.with_outputs(TRY(infer_types(view)));
    if (c.op.check) TRY(c.op.check(view));
    OpContext context(*this, c, env);
    if (c.op.body && (!c.op.body_applies || c.op.body_applies(view))) {
        std::vector<Datum> results(c.outputs);
        for (size_t i = 0; i < c.outputs; ++i) {
            if (!view.wants(i)) continue;
            view.for_output(i);
            const Expr body = c.op.body(view, output_indices(view.out(i).shape));
            results[i] = TRY(evaluate_body(view, body, tensors, &context));
        }
        return results;
    }
    if (c.op.evaluate) return c.op.evaluate(view, context);
    if (c.op.expand) return expand(c, view, env);
    return view.error(Code::E0409, "has no meaning for these inputs");
}

// The smaller graph that the op stands for, on inputs that are known. Nested graphs that it shares with the op see the
// op's surroundings.
Result<std::vector<Datum>> Evaluation::expand(const OpCall& c, const OpView& view, const Environment* env) {
    Graph graph(c.op.name);
    Environment inner{env};
    std::vector<Value*> inputs;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
        const Datum* d = c.inputs[i];
        if (!d) {
            inputs.push_back(nullptr);
        } else if (d->is_tensor() && is_int(d->tensor().dtype()) && d->tensor().elements() <= kMaxConstantInput) {
            inputs.push_back(graph.constant(d->tensor()));  // so that inference knows it
        } else {
            inputs.push_back(graph.add_input(fmt::format("x{}", i), view.type(i)));
            inner.values[inputs.back()] = *d;
        }
    }
    Builder build(graph);
    std::vector<Value*> results = TRY(build.finish(TRY(c.op.expand(view, inputs, build))));
    std::vector<size_t> given;
    for (size_t i = 0; i < results.size(); ++i) {
        if (!results[i]) continue;
        given.push_back(i);
        graph.add_output(results[i]);
    }
    std::vector<Datum> outputs(c.outputs), computed = TRY(walk(graph, inner, false));
    forget(graph);
    for (size_t i = 0; i < given.size(); ++i)
        if (given[i] < outputs.size()) outputs[given[i]] = std::move(computed[i]);
    return outputs;
}

}  // namespace

Result<std::vector<Datum>> evaluate(const Graph& graph, const Inputs& inputs, const EvaluateOptions& options) {
    Environment env;
    TRY(check_places(inputs));
    std::vector<Datum> bound = TRY(bind_inputs(graph, inputs, options.contradiction));
    Evaluation evaluation(options);
    for (size_t i = 0; i < bound.size(); ++i) {
        if (options.check_sizes) TRY(evaluation.check_size(*graph.inputs()[i], bound[i]));
        env.values[graph.inputs()[i].get()] = std::move(bound[i]);
    }
    return evaluation.walk(graph, env, true);
}

Result<std::vector<Datum>> evaluate_op(const OpDef& op, const std::vector<std::optional<Datum>>& inputs,
                                       const AttrMap& attrs, size_t outputs, const EvaluateOptions& options) {
    OpCall c{op, attrs, {}, outputs, std::vector<bool>(outputs, true), {}};
    for (const auto& d : inputs) c.inputs.push_back(d ? &*d : nullptr);
    return Evaluation(options).call(c, nullptr);
}

struct NodeEvaluator::State {
    Evaluation evaluation;
};

NodeEvaluator::NodeEvaluator(const EvaluateOptions& options, RunNested nested)
    : state_(new State{Evaluation(options, std::move(nested))}) {}
NodeEvaluator::~NodeEvaluator() = default;

Result<std::vector<Datum>> NodeEvaluator::run(const Node& node, const Find& find) {
    Environment env{.kept = &find};
    state_->evaluation.start(node, 0, 1);
    Status done = state_->evaluation.run_node(node, env, false);
    if (!done.ok()) return std::move(done).error().at(node.where());
    std::vector<Datum> results(node.output_count());
    for (size_t i = 0; i < results.size(); ++i)
        if (auto at = env.values.find(node.output(i)); at != env.values.end()) results[i] = std::move(at->second);
    return results;
}

namespace {

// A node's use of its op in a run, before inference. Inputs that `find` has not are of their declared type, sized by
// `symbols`.
OpView view_in_run(const Node& node, const NodeEvaluator::Find& find, const SymbolValues& symbols) {
    std::vector<Type> types;
    std::vector<const Tensor*> tensors;
    for (const Value* v : node.inputs()) {
        const Datum* d = v ? find(v) : nullptr;
        types.push_back(d ? type_of(*d) : v ? sized(v->type(), symbols) : Type());
        tensors.push_back(d && d->is_tensor() ? &d->tensor() : v && v->tensor() ? &*v->tensor() : nullptr);
    }
    OpView view(node.op(), node.attrs(), std::move(types), node.output_count());
    std::vector<std::string> names;
    for (size_t i = 0; i < node.output_count(); ++i) names.push_back(node.output(i)->name());
    view.with_values(tensors).with_output_names(std::move(names)).at(node.where());
    return view;
}

}  // namespace

Status NodeEvaluator::check(const Node& node, const Find& find, const SymbolValues& symbols) {
    OpView view = view_in_run(node, find, symbols);
    const Types outputs = TRY(infer_types(view));
    view.with_outputs(outputs);
    if (node.op().check) TRY(node.op().check(view));
    auto is_empty = [](const Type& t) { return t.is_tensor() && t.tensor().shape.elements().is_int(0); };
    bool reads_nothing = false;
    for (size_t i = 0; i < node.inputs().size(); ++i) reads_nothing |= node.inputs()[i] && is_empty(view.type(i));
    if (!reads_nothing || !node.op().body || std::all_of(outputs.begin(), outputs.end(), is_empty)) return {};
    return made_of_nothing(node, find, view);
}

// Computes it to see that it can be, with zeros for contents that are not looked at.
Status NodeEvaluator::made_of_nothing(const Node& node, const Find& find, const OpView& view) {
    std::vector<std::pair<const Value*, Datum>> zeros;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        const Value* v = node.inputs()[i];
        if (!v || find(v) || v->is_constant() || !view.type(i).is_tensor()) continue;
        if (auto sizes = view.shape(i).sizes()) zeros.emplace_back(v, TRY(Tensor::zeros(view.dtype(i), *sizes)));
    }
    TRY(run(node, [&](const Value* v) -> const Datum* {
        for (const auto& [value, datum] : zeros)
            if (value == v) return &datum;
        return find(v);
    }));
    return {};
}

Result<std::vector<Type>> NodeEvaluator::infer(const Node& node, const Find& find, const SymbolValues& symbols) {
    return std::vector<Type>(TRY(infer_types(view_in_run(node, find, symbols))));
}

Type sized(const Type& type, const SymbolValues& symbols) {
    if (type.is_sequence()) return Type::sequence(sized(type.element(), symbols));
    if (type.is_optional()) return Type::optional(sized(type.element(), symbols));
    if (!type.is_tensor() || !type.tensor().shape.ranked()) return type;
    TensorType t = type.tensor();
    for (int64_t d = 0; d < t.rank(); ++d)
        if (auto n = evaluate_int(t.shape[d], symbols)) t.shape[d] = *n;
    return t;
}

std::vector<const Value*> captured_values(const Node& node) {
    std::vector<const Value*> found;
    std::vector<const Graph*> open;
    auto add_nested = [&](const Node& n) {
        for (const auto& [_, attr] : n.attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr); nested && *nested) open.push_back(nested->get());
    };
    auto use = [&](const Value* v) {
        if (v && &v->graph() == &node.graph() && std::find(found.begin(), found.end(), v) == found.end())
            found.push_back(v);
    };
    add_nested(node);
    while (!open.empty()) {
        const Graph& graph = *open.back();
        open.pop_back();
        for (const Value* v : graph.outputs()) use(v);
        for (const auto& n : graph.nodes()) {
            for (const Value* v : n->inputs()) use(v);
            add_nested(*n);
        }
    }
    return found;
}

}  // namespace tessera
