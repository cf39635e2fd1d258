#include "train/training_graph.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <unordered_set>

#include "base/nearest.h"
#include "graph/gradient/gradient.h"
#include "train/losses.h"
#include "train/precision.h"
#include "train/training_mode.h"

namespace tessera {
namespace {

bool matches(const std::vector<std::string>& patterns, const std::string& name) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& p) { return fnmatch(p.c_str(), name.c_str(), 0) == 0; });
}

bool is_float_tensor(const Value& v) { return v.type().is_tensor() && is_float(v.type().tensor().dtype); }

// What `value` is computed from by way of float tensors, through which gradients flow.
std::unordered_set<const Value*> sources_of(const Value* value) {
    std::unordered_set<const Value*> seen;
    std::vector<const Value*> work = {value};
    while (!work.empty()) {
        const Value* v = work.back();
        work.pop_back();
        if (!v || !is_float_tensor(*v) || !seen.insert(v).second || !v->node()) continue;
        for (const Value* i : v->node()->inputs()) work.push_back(i);
    }
    return seen;
}

Error no_gradient_reaches(const std::string& name) {
    return Error(Code::E0501, "no gradient reaches \"{}\": the loss does not depend on it", name)
        .hint("leave it out of parameters, or name it in frozen");
}

Result<size_t> loss_output(const Graph& graph, const Loss& loss) {
    if (graph.outputs().empty()) return Error(Code::E0501, "the model has no output to compute a loss from");
    if (loss.output.empty()) return size_t{0};
    const auto& names = graph.output_names();
    auto at = std::find(names.begin(), names.end(), loss.output);
    if (at != names.end()) return size_t(at - names.begin());
    return Error(Code::E0401, "the model has no output \"{}\" to compute a loss from", loss.output)
        .hint("its outputs are: {}", fmt::join(names, ", "));
}

// Whether `parameters` has the name itself, not a pattern of it.
bool named(const TrainingOptions& options, const std::string& name) {
    return std::find(options.parameters.begin(), options.parameters.end(), name) != options.parameters.end();
}

// The initializer that a pattern most likely meant, and the first names.
std::string shown_initializers(const Graph& graph, const std::string& pattern) {
    constexpr size_t kMost = 8;
    std::vector<std::string_view> names;
    for (const auto& c : graph.constants()) names.push_back(c->name());
    if (names.empty()) return "it has none";
    const std::string meant = nearest(pattern, names);
    const size_t more = names.size() - std::min(names.size(), kMost);
    names.resize(names.size() - more);
    return fmt::format("{}there are: {}{}", meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
                       fmt::join(names, ", "), more ? fmt::format(", and {} more", more) : "");
}

// A float constant that a gradient may reach and that somebody may want to train.
Result<std::vector<std::string>> candidates(const Graph& graph, const TrainingOptions& options) {
    const auto sources = sources_of(graph.outputs()[TRY(loss_output(graph, options.loss))]);
    const std::vector<Value*> statistics = running_statistics(graph);
    std::vector<std::string> names;
    for (const auto& c : graph.constants()) {
        const bool statistic = std::find(statistics.begin(), statistics.end(), c.get()) != statistics.end();
        const bool asked = matches(options.parameters, c->name());
        if (statistic || !sources.contains(c.get())) {
            if (named(options, c->name())) return no_gradient_reaches(c->name());
            continue;
        }
        if (options.parameters.empty() ? c->type().tensor().rank() >= 1 : asked) names.push_back(c->name());
    }
    std::erase_if(names, [&](const std::string& name) { return matches(options.frozen, name); });
    for (const auto* patterns : {&options.parameters, &options.frozen})
        for (const std::string& p : *patterns)
            if (std::none_of(graph.constants().begin(), graph.constants().end(),
                             [&](const auto& c) { return matches({p}, c->name()); }))
                return Error(Code::E0501, "\"{}\" names no initializer of the model", p)
                    .hint("{}", shown_initializers(graph, p));
    if (names.empty()) return Error(Code::E0501, "the model has no float initializer to train");
    return names;
}

// Whether differentiate found that no gradient flows: null, or zeros of the value's shape.
bool no_gradient(const Value* g) {
    if (!g) return true;
    const Node* node = g->node();
    const Value* filled = node && node->op().name == "expand" ? node->input(0) : nullptr;
    return filled && filled->is_constant() && filled->tensor()->elements() == 1 && filled->tensor()->real_at(0) == 0;
}

std::optional<DType> narrow_type(const TrainingOptions& options) {
    if (options.precision == "f32") return {};
    return options.precision == "bf16" ? DType::bf16 : DType::f16;
}

// The graph of one kind of step, while it is put together.
class StepBuilder {
  public:
    StepBuilder(const Graph& model, const TrainingOptions& options, StepKind kind,
                const std::vector<TrainedTensor>& all, const std::function<Status(Graph&)>& recognise)
        : options_(options), kind_(kind), all_(all), recognise_(recognise), b_(copy_of(model)), inputs_(all.size()) {
        step_.places.resize(all.size());
    }

    // The loss and, unless the model is only evaluated, what of it flows back to each of the first `parameters`.
    Status differentiate_loss(size_t parameters) {
        parameters_ = parameters;
        for (size_t i = 0; i < all_.size(); ++i)
            if (!all_[i].constant.empty()) open_constant(i);
        if (kind_ == StepKind::Evaluate) {
            TRY(normalize_by_statistics(graph()));
        } else {
            // Rewriting takes dropout for what it is in inference: nothing.
            const auto& nodes = graph().nodes();
            if (std::none_of(nodes.begin(), nodes.end(), [](const auto& n) { return n->op().name == "dropout"; }))
                TRY(recognise_(graph()));
            if (const auto narrow = narrow_type(options_))
                TRY(narrow_values(graph(), *narrow, {inputs_.begin(), inputs_.end()}));
            if (options_.training_mode) TRY(follow_training_mode());
            TRY(write_out_for_gradients(graph(), {inputs_.begin(), inputs_.begin() + std::ptrdiff_t(parameters_)}));
        }
        Value* output = graph().outputs()[TRY(loss_output(graph(), options_.loss))];
        TRY(add_loss(output));
        return kind_ == StepKind::Evaluate ? Status() : add_gradients(output);
    }
    const std::vector<Value*>& gradients() const { return gradients_; }

    Result<StepGraph> finish() {
        if (kind_ != StepKind::Evaluate) TRY(add_step());
        TRY(b_.status());
        set_outputs();
        graph().erase_unused();
        graph().sort();
        return std::move(step_);
    }

  private:
    Graph& graph() { return *step_.graph; }
    Graph& copy_of(const Graph& model) {
        step_.graph = model.clone();
        return graph();
    }

    Value* add_input(const std::string& name, Type type) { return graph().add_input(name, std::move(type)); }
    static int index_of(const Value* input) { return static_cast<int>(input->index()); }
    Value* scalar_input(std::string_view name, DType t, int& place) {
        Value* v = add_input(std::string(name), Type(t, Shape()));
        place = index_of(v);
        return v;
    }

    // A constant becomes an input.
    void open_constant(size_t i) {
        Value* c = graph().find_value(all_[i].constant);
        graph().rename(*c, all_[i].constant + ".initial");
        input_of(i, c);
    }
    Value* input_of(size_t i, Value* instead_of = nullptr) {
        if (inputs_[i]) return inputs_[i];
        const Tensor& t = all_[i].initial;
        inputs_[i] = add_input(all_[i].name, Type(t.dtype(), Shape(t.sizes())));
        step_.places[i].input = index_of(inputs_[i]);
        if (instead_of) graph().replace_uses(instead_of, inputs_[i]);
        return inputs_[i];
    }
    // The tensor with this name: a slot of a parameter's.
    size_t number_of(const std::string& name) const {
        return size_t(std::find_if(all_.begin(), all_.end(), [&](const auto& t) { return t.name == name; }) -
                      all_.begin());
    }

    Status follow_training_mode() {
        for (const RunningStatistic& s : TRY(normalize_by_batch(graph())))
            for (size_t i = 0; i < all_.size(); ++i)
                if (inputs_[i] == s.before) {
                    statistics_[i] = graph().outputs().size();
                    graph().add_output(s.after);
                }
        Value* seed = nullptr;
        TRY(drop_by_counter(graph(), [&] {
            if (!seed) seed = scalar_input("random_seed", DType::i64, step_.seed);
            return seed;
        }));
        return {};
    }

    Status add_loss(Value* output) {
        if (options_.loss.kind == "output") {
            if (!is_float_tensor(*output) || output->type().tensor().shape.elements().as_int() != 1)
                return Error(Code::E0501, "the loss \"output\" needs a scalar output, but \"{}\" is {}", output->name(),
                             output->type());
            const DType t = output->type().tensor().dtype == DType::f64 ? DType::f64 : DType::f32;
            loss_.loss = b_.reshape(b_.cast(output, t), {});
            return b_.status();
        }
        Value* target = add_input("target", TRY(target_type(options_.loss, *output)));
        step_.target = index_of(target);
        loss_ = TRY(build_loss(b_, options_.loss, output, target));
        return {};
    }

    // With the loss's own gradient at the output, the rest follows from output * gradient, where that gradient is fed,
    // and nothing flows through it.
    Status add_gradients(Value* output) {
        if (options_.precision == "f16" || options_.loss_scale > 0)
            scale_ = scalar_input("loss_scale", DType::f32, step_.scale);
        std::map<const Value*, Value*> fed;
        std::vector<Value*> wanted(inputs_.begin(), inputs_.begin() + std::ptrdiff_t(parameters_));
        for (Value* p : wanted) fed[p] = p;
        Value *target = output, *seed = loss_.gradient;
        if (!seed && scale_) seed = scale_;
        if (loss_.gradient && scale_) seed = b_.mul(seed, cast_like(scale_, seed));
        if (seed) {
            seed = cast_like(seed, output);
            fed[seed] = seed;
            target = b_.mul(output, seed);
        }
        TRY(b_.status());
        gradients_ = TRY(differentiate(b_, target, wanted, std::move(fed)));
        return write_out_batch_statistics(graph());
    }

    // Parameters that are read in the narrow type, whole, are read from copies that steps keep up to date.
    void read_copies() {
        for (size_t i = 0; i < all_.size(); ++i) {
            if (!all_[i].copy_of) continue;
            const Value* parameter = inputs_[*all_[i].copy_of];
            const DType narrow = all_[i].initial.dtype();
            std::vector<Value*> casts;
            for (const auto& node : graph().nodes())
                if (node->op().name == "cast" && node->input(0) == parameter &&
                    node->output()->type().tensor().dtype == narrow)
                    casts.push_back(node->output());
            for (Value* cast : casts) graph().replace_uses(cast, input_of(i));
        }
    }

    Status add_step() {
        if (scale_)
            for (size_t i = 0; i < gradients_.size(); ++i)
                gradients_[i] = b_.div(gradients_[i], cast_like(scale_, gradients_[i]));
        finite_ = is_finite(loss_.loss);
        if (scale_)
            for (Value* g : gradients_) finite_ = b_.op("and", {finite_, is_finite(g)});
        for (const auto& [i, output] : statistics_) updated_[i] = kept(graph().outputs()[output], inputs_[i]);
        read_copies();
        if (options_.accumulate > 1) add_up();
        if (kind_ == StepKind::Whole) update();
        return b_.status();
    }

    // What was there stays where something is not finite.
    Value* kept(Value* now, Value* before) { return b_.op("where", {finite_, now, before}); }

    // Whether all elements are: comparisons with nan are false.
    Value* is_finite(Value* x) {
        const DType t = x->type().tensor().dtype;
        Value* inside = b_.op("less_or_equal", {b_.op("abs", {x}), b_.scalar(largest(t), t)});
        if (x->type().tensor().rank() == 0) return inside;
        Value* least = b_.op("reduce_min", {b_.cast(inside, DType::f32)}, {{"keepdims", Attr(int64_t{0})}});
        return b_.op("greater", {least, b_.scalar(0, DType::f32)});
    }
    static double largest(DType t) {
        if (t == DType::f64) return std::numeric_limits<double>::max();
        return t == DType::f16 ? 65504 : t == DType::bf16 ? 0x1.fep127 : double(std::numeric_limits<float>::max());
    }

    // Of the batches since the last update.
    void add_up() {
        Value* keep = scalar_input("keep_gradients", DType::boolean, step_.keep);
        for (size_t i = 0; i < gradients_.size(); ++i) {
            const size_t sum = number_of(gradient_sum(all_[i].name));
            Value*& g = gradients_[i];
            g = b_.op("where", {keep, b_.add(input_of(sum), g), g});
            if (kind_ == StepKind::Accumulate)
                updated_[sum] = kept(g, input_of(sum));
            else
                g = b_.div(g, b_.scalar_like(options_.accumulate, g));
        }
    }

    Value* cast_like(Value* x, Value* like) { return b_.cast(x, like->type().tensor().dtype); }

    void clip() {
        if (options_.clip_value > 0)
            for (Value*& g : gradients_) {
                Value* most = b_.scalar_like(options_.clip_value, g);
                g = b_.op("min", {b_.op("max", {g, b_.scalar_like(-options_.clip_value, g)}), most});
            }
        if (options_.clip_norm <= 0) return;
        Value* squares = nullptr;
        for (Value* g : gradients_) {
            Value* wide = g->type().tensor().dtype == DType::f64 ? g : b_.cast(g, DType::f32);
            Value* own = b_.op("reduce_sum", {b_.mul(wide, wide)}, {{"keepdims", Attr(int64_t{0})}});
            own = b_.cast(own, loss_.loss->type().tensor().dtype);
            squares = squares ? b_.add(squares, own) : own;
        }
        norm_ = b_.op("sqrt", {squares});
        Value* factor = b_.div(b_.scalar_like(options_.clip_norm, norm_), b_.add(norm_, b_.scalar_like(1e-6, norm_)));
        factor = b_.op("min", {factor, b_.scalar_like(1, factor)});
        for (Value*& g : gradients_) g = b_.mul(g, cast_like(factor, g));
    }

    void update() {
        clip();
        std::map<StepNumber, Value*> numbers;
        for (StepNumber n : numbers_of(options_.optimizer)) {
            int place = -1;
            numbers[n] = scalar_input(name_of(n), DType::f64, place);
            step_.numbers.emplace_back(n, size_t(place));
        }
        for (size_t i = 0; i < gradients_.size(); ++i) {
            std::vector<size_t> slots;
            std::vector<Value*> before;
            for (const std::string& slot : slots_of(options_.optimizer)) {
                slots.push_back(number_of(all_[i].name + "." + slot));
                before.push_back(input_of(slots.back()));
            }
            const Update made = build_update(
                b_, options_.optimizer, inputs_[i], gradients_[i], before,
                [&](StepNumber n) { return cast_like(numbers.at(n), inputs_[i]); },
                [&](Value* now, Value* old) { return kept(now, old); });
            updated_[i] = kept(made.parameter, inputs_[i]);
            for (size_t k = 0; k < slots.size(); ++k) updated_[slots[k]] = made.slots[k];
        }
        for (size_t i = 0; i < all_.size(); ++i)
            if (const auto of = all_[i].copy_of; of && inputs_[i])
                updated_[i] = b_.cast(updated_.at(*of), all_[i].initial.dtype());
    }

    // In Evaluate the model's come first; otherwise others take their places. What updates an input is an output of the
    // input's name, as build_program looks for it.
    void set_outputs() {
        std::vector<std::pair<Value*, std::string>> all;
        const size_t given = graph().outputs().size();
        for (size_t i = 0; kind_ == StepKind::Evaluate && i < given; ++i) all.emplace_back(graph().outputs()[i], "");
        auto add = [&](Value* v, const std::string& name) {
            if (!v) return -1;
            all.emplace_back(v, name);
            return static_cast<int>(all.size() - 1);
        };
        step_.loss = add(loss_.loss, "loss");
        step_.finite = add(finite_, "finite");
        step_.norm = add(norm_, "gradient_norm");
        while (all.size() < given) add(loss_.loss, "");
        for (const auto& [i, after] : updated_) step_.places[i].output = add(after, inputs_[i]->name());
        for (size_t i = 0; i < all.size(); ++i)
            i < given ? graph().set_output(i, all[i].first) : graph().add_output(all[i].first, all[i].second);
    }

    const TrainingOptions& options_;
    const StepKind kind_;
    const std::vector<TrainedTensor>& all_;
    const std::function<Status(Graph&)>& recognise_;
    StepGraph step_;
    Builder b_;
    std::vector<Value*> inputs_;        // by tensor; null: not an input yet
    std::map<size_t, Value*> updated_;  // by tensor: what it is after the step
    // By running statistic: the output of the graph that it is after the step, until set_outputs; nodes that are
    // written out keep their outputs up to date.
    std::map<size_t, size_t> statistics_;
    size_t parameters_ = 0;
    std::vector<Value*> gradients_;  // by parameter
    LossNodes loss_;
    Value *scale_ = nullptr, *finite_ = nullptr, *norm_ = nullptr;
};

Result<Tensor> copied(const Tensor& t) {
    Tensor own = TRY(Tensor::zeros(t.dtype(), t.sizes()));
    if (t.bytes()) std::memcpy(own.mutable_data(), t.data(), size_t(t.bytes()));
    return own;
}

// Parameters first, then running statistics, then what the optimizer remembers, then narrow copies: of matrices,
// where users do not write to parameters unnoticed.
Result<std::vector<TrainedTensor>> tensors_of(const Graph& model, const TrainingOptions& options,
                                              const std::vector<std::string>& parameters, bool shares_memory) {
    std::vector<TrainedTensor> all;
    // A rank of a mesh takes its part of what the model has.
    const auto own = [&](const Tensor& t) -> Result<Tensor> { return options.mesh.axes.empty() ? copied(t) : t; };
    for (const std::string& name : parameters) {
        const Value* v = model.find_value(name);
        all.push_back({name, name, TRY(own(*v->tensor()))});
    }
    std::vector<const Value*> seen;
    for (const Value* v : running_statistics(model)) {
        if (!options.training_mode || !v || !v->is_constant() || &v->graph() != &model) continue;
        if (std::find(seen.begin(), seen.end(), v) != seen.end()) continue;
        seen.push_back(v);
        all.push_back({v->name(), v->name(), TRY(own(*v->tensor()))});
    }
    std::vector<std::string> slots;
    for (const std::string& slot : slots_of(options.optimizer)) slots.push_back("." + slot);
    if (options.accumulate > 1) slots.push_back(gradient_sum(""));
    for (size_t i = 0; i < parameters.size(); ++i)
        for (const std::string& slot : slots) {
            const Tensor& p = all[i].initial;
            all.push_back({parameters[i] + slot, {}, TRY(Tensor::zeros(p.dtype(), p.sizes()))});
        }
    const auto narrow = narrow_type(options);
    for (size_t i = 0; narrow && !shares_memory && i < parameters.size(); ++i)
        if (const Tensor& p = all[i].initial; p.dtype() == DType::f32 && p.rank() >= 2)
            all.push_back({fmt::format("{}.{}", parameters[i], options.precision),
                           {},
                           TRY(Tensor::zeros(*narrow, p.sizes())),
                           i});
    return all;
}

Status check_options(const TrainingOptions& o) {
    TRY(check_optimizer(o.optimizer));
    if (o.precision != "f32" && o.precision != "bf16" && o.precision != "f16")
        return Error(Code::E0501, "there is no training precision \"{}\"", o.precision)
            .hint("there are: f32, bf16, f16");
    if (o.accumulate < 1) return Error(Code::E0501, "accumulate: expected at least 1, got {}", o.accumulate);
    for (const auto& [name, value] :
         {std::pair{"clip_norm", o.clip_norm}, {"clip_value", o.clip_value}, {"loss_scale", o.loss_scale}})
        if (!(value >= 0)) return Error(Code::E0501, "{}: expected at least 0, got {}", name, value);
    return {};
}

}  // namespace

std::string gradient_sum(const std::string& parameter) { return parameter + ".gradient_sum"; }

Result<TrainingPlan> plan_training(const Graph& model, const TrainingOptions& options, bool shares_memory,
                                   const std::function<Status(Graph&)>& recognise) {
    TRY(check_options(options));
    std::vector<std::string> names = TRY(candidates(model, options));
    TrainingPlan plan;
    for (;;) {
        plan.tensors = TRY(tensors_of(model, options, names, shares_memory));
        StepBuilder whole(model, options, StepKind::Whole, plan.tensors, recognise);
        TRY(whole.differentiate_loss(names.size()));
        std::vector<std::string> reached;
        for (size_t i = 0; i < names.size(); ++i)
            (no_gradient(whole.gradients()[i]) ? plan.untrained : reached).push_back(names[i]);
        for (const std::string& name : plan.untrained)
            if (named(options, name)) return no_gradient_reaches(name);
        if (reached.empty()) return Error(Code::E0501, "no gradient reaches any initializer of the model");
        if (reached.size() < names.size()) {
            names = std::move(reached);
            continue;
        }
        plan.whole = TRY(whole.finish());
        break;
    }
    for (size_t i = plan.tensors.size(); i-- > 0 && plan.tensors[i].copy_of;)
        if (plan.whole.places[i].input < 0) {  // nothing reads it
            plan.tensors.erase(plan.tensors.begin() + std::ptrdiff_t(i));
            plan.whole.places.erase(plan.whole.places.begin() + std::ptrdiff_t(i));
        }
    plan.parameters = names.size();
    if (options.loss.kind == "cross_entropy")
        plan.classes = class_count(options.loss, *model.outputs()[TRY(loss_output(model, options.loss))]);
    for (auto [kind, into] :
         {std::pair{StepKind::Accumulate, &plan.accumulate}, {StepKind::Evaluate, &plan.evaluate}}) {
        if (kind == StepKind::Accumulate && options.accumulate == 1) continue;
        StepBuilder build(model, options, kind, plan.tensors, recognise);
        TRY(build.differentiate_loss(names.size()));
        *into = TRY(build.finish());
    }
    return plan;
}

std::shared_ptr<Graph> with_tensors(const Graph& model, const std::vector<TrainedTensor>& tensors,
                                    const std::vector<Tensor>& now) {
    std::shared_ptr<Graph> graph = model.clone();
    for (size_t i = 0; i < now.size(); ++i)
        if (const std::string& name = tensors[i].constant; !name.empty())
            graph->move_constant(*graph->find_value(name), now[i]);
    return graph;
}

}  // namespace tessera
