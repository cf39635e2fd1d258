#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "graph/op_view.h"
#include "runtime/run.h"

namespace tessera {
namespace {

constexpr int64_t kWorkPerIteration = 1 << 14;  // of RunOptions::max_work, as the evaluator counts it
constexpr int64_t kFirstCollected = 64;  // iterations that there is room for at first, where they are not counted

std::optional<int64_t> whole_number(const Datum& d) {
    if (!d.is_tensor() || d.tensor().elements() != 1) return std::nullopt;
    return d.tensor().int_at(0);
}

}  // namespace

// A body that runs again and again over states that stay as large as they are, or that it does not read. Its kernels
// read the slices of sequences where they lie, and write what is collected where it goes; a state is read where the
// iteration before wrote it.
class Run::Repetition {
  public:
    Repetition(const LoadedProgram& body, const ControlForm& form, const RunOptions& options)
        : body_(body), layout_(body.layout_), form_(form), options_(options) {}

    // `own`: the initial states and whole sequences; `captured`: what the body uses from around it.
    Result<std::optional<std::vector<Datum>>> run(const std::vector<Datum>& own, const std::vector<Datum>& captured,
                                                  int64_t trips, bool go_on) {
        if (trips <= 0 || !go_on || !body_.device_.shares_memory() || !starts(own)) return no_results();
        std::vector<Datum> inputs = first_inputs(own);
        inputs.insert(inputs.end(), captured.begin(), captured.end());
        if (!fits(inputs)) return no_results();
        auto plan = TRY(body_.plan_for(inputs));
        if (!find_outputs(*plan)) return no_results();
        Borrowed context(TRY(body_.take_context()), *body_.memory_);
        TRY(body_.prepare(*context, plan));
        Run run(body_, *context, options_);
        for (size_t i = 0; i < inputs.size(); ++i) TRY(run.bind_input(i, inputs[i]));
        for (size_t i = 0; i < inputs.size() - captured.size(); ++i)  // from here on, where `point` says
            if (const int b = body_.program_.inputs[i]; b >= 0) context->data[root(b)].reset();
        TRY(make_room(trips));
        const auto& steps = body_.program_.steps;
        const bool plain = std::all_of(steps.begin(), steps.end(), [](const Step& s) {
            return std::holds_alternative<KernelStep>(s) || std::holds_alternative<CheckStep>(s);
        });
        for (done_ = 0; done_ < trips && go_on; ++done_) {
            if (done_ >= options_.max_work / kWorkPerIteration) return no_results();
            if (done_ == room_) TRY(make_room(2 * room_));
            if (done_ > 0 && !plain) context->forget_sizes();
            point(*context);
            for (size_t s = 0; s < steps.size(); ++s) {
                TRY(run.step(s));
                run.report(s, s + 1);
            }
            TRY(finish(run, *context));
            if (form_.condition) go_on = *static_cast<const char*>(condition_.get()) != 0;
        }
        TRY(context->stream->synchronize());
        return std::optional(results());
    }

  private:
    // One output of the body, and where it goes.
    struct Output {
        int buffer = -1;
        size_t root = 0;
        int64_t bytes = 0;
        bool own_root = false;              // kernels write it where it goes; what else lies there is copied from there
        std::shared_ptr<void> memory = {};  // of all iterations, if it is collected; else of every second one
        std::shared_ptr<void> other = {};   // of the others
        void* at = nullptr;                 // in this iteration
    };
    struct State {
        Tensor initial;
        const void* now;
        std::shared_ptr<const void> owner;
        std::optional<size_t> collected;  // lies there, in the slice of the last iteration
    };

    static std::optional<std::vector<Datum>> no_results() { return std::nullopt; }
    size_t root(int buffer) const { return static_cast<size_t>(layout_.root[static_cast<size_t>(buffer)]); }
    size_t before_states() const { return form_.numbered ? 2 : 0; }

    bool starts(const std::vector<Datum>& own) {
        for (size_t i = 0; i < own.size(); ++i) {
            if (!own[i].is_tensor() || own[i].tensor().dtype() == DType::string) return false;
            const Tensor& t = own[i].tensor();
            if (t.elements() > 0 && !usable(t)) return false;
            if (i < form_.states)
                states_.push_back({t, t.data(), t.owner(), {}});
            else if (t.rank() == 0 || t.size(0) != own[form_.states].tensor().size(0))
                return false;
            else
                sequences_.push_back(t);
        }
        return true;
    }

    // Whether the inputs have the sizes that the body declares, which its kernels rely on.
    bool fits(const std::vector<Datum>& inputs) const {
        SymbolValues symbols;
        for (size_t i = 0; i < inputs.size(); ++i)
            if (!binds(body_.program_.graph->inputs()[i]->type(), type_of(inputs[i]), symbols)) return false;
        return true;
    }

    static int64_t slice_bytes(const Tensor& t) { return t.size(0) > 0 ? t.bytes() / t.size(0) : 0; }

    const void* slice(size_t i) const {
        const Tensor& t = sequences_[i];
        const int64_t at = form_.sequences[i] ? t.size(0) - 1 - done_ : done_;
        return static_cast<const char*>(t.data()) + at * slice_bytes(t);
    }

    std::vector<Datum> first_inputs(const std::vector<Datum>& own) {
        std::vector<Datum> inputs;
        if (form_.numbered) {
            auto scalar = [&](size_t i, Tensor t) {
                const Type& type = body_.program_.graph->inputs()[i]->type();
                const bool vector = type.is_tensor() && type.tensor().shape.ranked() && type.tensor().rank() == 1;
                inputs.emplace_back(vector ? t.reshaped({1}) : t);
            };
            scalar(0, Tensor::scalar(int64_t{0}));
            scalar(1, Tensor::scalar(true));
        }
        for (size_t i = 0; i < form_.states; ++i) inputs.push_back(own[i]);
        for (size_t i = 0; i < sequences_.size(); ++i) {
            const Tensor& t = sequences_[i];
            inputs.emplace_back(
                Tensor::view(t.dtype(), Sizes(t.sizes().begin() + 1, t.sizes().end()), slice(i), t.owner()));
        }
        return inputs;
    }

    // A shape that inference does not know looks like that of one element.
    static bool has_known_rank(const ProgramBuffer& b) {
        return !b.value || (b.value->type().is_tensor() && b.value->type().tensor().shape.ranked());
    }

    // False where a size is not known before an iteration, or a state changes its own.
    bool find_outputs(const RunPlan& plan) {
        const Program& program = body_.program_;
        std::vector<bool> taken(program.buffers.size());
        for (int b : program.outputs) {
            const auto at = static_cast<size_t>(b);
            if (plan.bytes[at] < 0 || !has_known_rank(program.buffers[at])) return false;
            Output& o = outputs_.emplace_back(Output{.buffer = b, .root = root(b), .bytes = plan.bytes[at]});
            o.own_root = layout_.home[at] == Home::Output;
            sizes_.push_back(plan.sizes[at]);
        }
        const size_t first = form_.numbered ? 1 : 0;
        if (outputs_.size() != first + form_.states + form_.collected.size()) return false;
        if (form_.numbered && outputs_[0].bytes != 1) return false;
        for (size_t i = 0; i < form_.states; ++i) {
            const ProgramBuffer& b = program.buffers[static_cast<size_t>(outputs_[first + i].buffer)];
            if (b.dtype != states_[i].initial.dtype()) return false;
            const bool is_read = !program.graph->inputs()[before_states() + i]->uses().empty();
            if (is_read && sizes_[first + i] != states_[i].initial.sizes()) return false;
        }
        // What is collected first: a state that is the same value is read from there.
        for (size_t i = outputs_.size(); i-- > 0;) {
            Output& o = outputs_[i];
            o.own_root = o.own_root && !taken[o.root];
            if (o.own_root) taken[o.root] = true;
        }
        return true;
    }

    bool is_collected(size_t output) const { return output >= (form_.numbered ? 1 : 0) + form_.states; }
    bool is_condition(size_t output) const { return form_.numbered && output == 0; }

    // For so many iterations in all; where they were not counted, again for more.
    Status make_room(int64_t trips) {
        const bool again = room_ > 0;
        room_ = form_.trips || !form_.numbered || again ? std::min(trips, most_room()) : kFirstCollected;
        for (size_t i = 0; i < outputs_.size(); ++i) {
            Output& o = outputs_[i];
            if (!is_collected(i)) {
                if (again) continue;
                o.memory = TRY(body_.outputs_->take(o.bytes));
                if (is_condition(i))
                    condition_ = o.memory;
                else
                    o.other = TRY(body_.outputs_->take(o.bytes));
                continue;
            }
            int64_t bytes = 0;
            if (__builtin_mul_overflow(o.bytes, room_, &bytes))
                return Error(Code::E0108, "the collected outputs of {} iterations are too large", room_);
            auto memory = TRY(body_.outputs_->take(bytes));
            if (again && o.bytes) std::memcpy(memory.get(), o.memory.get(), static_cast<size_t>(o.bytes * done_));
            o.memory = std::move(memory);
        }
        for (State& s : states_)
            if (again && s.collected) {
                const Output& o = outputs_[*s.collected];
                s.now = static_cast<const char*>(o.memory.get()) + o.bytes * (done_ - 1);
                s.owner = o.memory;
            }
        return {};
    }
    // Counted iterations may still end early: no room for all of them at once where they are very many.
    int64_t most_room() const { return form_.condition ? std::max<int64_t>(2 * room_, 1 << 12) : INT64_MAX; }

    void point(RunContext& context) {
        std::vector<void*>& at = context.pointers;
        auto input = [&](size_t i, const void* data) {
            const int b = body_.program_.inputs[i];
            if (b >= 0 && layout_.home[root(b)] == Home::Input) at[root(b)] = read_only(data);
        };
        if (form_.numbered) {
            number_ = done_;
            input(0, &number_);
            input(1, &kTrue);
        }
        for (size_t i = 0; i < states_.size(); ++i) input(before_states() + i, states_[i].now);
        for (size_t i = 0; i < sequences_.size(); ++i) input(before_states() + states_.size() + i, slice(i));
        for (size_t i = 0; i < outputs_.size(); ++i) {
            Output& o = outputs_[i];
            if (is_collected(i)) {
                const bool reversed = form_.collected[i - (outputs_.size() - form_.collected.size())];
                o.at = static_cast<char*>(o.memory.get()) + o.bytes * (reversed ? room_ - 1 - done_ : done_);
            } else {
                o.at = done_ % 2 && o.other ? o.other.get() : o.memory.get();
            }
            if (o.own_root) at[o.root] = o.at;
        }
    }

    // Copies what kernels did not write where it goes; the states are where they are now.
    Status finish(const Run& run, RunContext& context) {
        const size_t first = form_.numbered ? 1 : 0;
        for (size_t i = 0; i < outputs_.size(); ++i) {
            Output& o = outputs_[i];
            if (o.own_root || o.bytes == 0) continue;
            auto whole = std::find_if(outputs_.begin(), outputs_.end(),
                                      [&](const Output& w) { return w.own_root && w.root == o.root; });
            if (whole != outputs_.end() && !is_collected(i) && !is_condition(i)) continue;  // read from there
            const bool given = layout_.home[o.root] == Home::Input && context.pointers[o.root];
            const void* from = whole != outputs_.end() ? whole->at
                               : given                 ? context.pointers[o.root]
                                                       : TRY(run.datum(o.buffer)).tensor().data();
            TRY(context.stream->copy_on_device(o.at, from, o.bytes));
        }
        for (size_t i = 0; i < states_.size(); ++i) {
            const Output& o = outputs_[first + i];
            size_t lies = first + i;
            for (size_t w = 0; w < outputs_.size(); ++w)
                if (!o.own_root && outputs_[w].own_root && outputs_[w].root == o.root) lies = w;
            const Output& w = outputs_[lies];
            states_[i].now = w.at;
            states_[i].owner = w.at == w.other.get() ? w.other : w.memory;
            states_[i].collected = is_collected(lies) ? std::optional(lies) : std::nullopt;
        }
        return {};
    }

    std::vector<Datum> results() {
        std::vector<Datum> out;
        const size_t first = form_.numbered ? 1 : 0;
        for (size_t i = 0; i < states_.size(); ++i) {
            State& s = states_[i];
            out.emplace_back(Tensor::view(s.initial.dtype(), sizes_[first + i], s.now, std::move(s.owner)));
        }
        for (size_t i = first + form_.states; i < outputs_.size(); ++i) {
            Sizes sizes = sizes_[i];
            sizes.insert(sizes.begin(), done_);
            const DType dtype = body_.program_.buffers[static_cast<size_t>(outputs_[i].buffer)].dtype;
            out.emplace_back(Tensor::view(dtype, std::move(sizes), outputs_[i].memory.get(), outputs_[i].memory));
        }
        return out;
    }

    static constexpr bool kTrue = true;
    const LoadedProgram& body_;
    const ProgramLayout& layout_;
    const ControlForm& form_;
    const RunOptions& options_;
    std::vector<State> states_;
    std::vector<Tensor> sequences_;
    std::vector<Output> outputs_;
    std::vector<Sizes> sizes_;  // by output
    std::shared_ptr<void> condition_;
    int64_t number_ = 0, done_ = 0, room_ = 0;
};

Result<std::optional<std::vector<Datum>>> Run::run_control(const ControlStep& step, const Values& values) {
    const std::optional<ControlForm> form = step.node->op().control(step.node->view());
    CHECK(form, "{} has no nested graphs to run", step.node->where());
    auto find = [&](const Value* v) -> const Datum* {
        for (const auto& [value, d] : values)
            if (value == v) return &d;
        return nullptr;
    };
    auto input = [&](size_t i) { return i < step.inputs.size() ? find(step.node->input(i)) : nullptr; };
    const Graph* graph = form->graphs[0];
    int64_t trips = INT64_MAX;
    bool go_on = true;
    std::vector<Datum> own;
    if (form->graphs.size() == 2) {
        auto condition = input(0) ? whole_number(*input(0)) : std::nullopt;
        if (!condition) return std::optional<std::vector<Datum>>();
        graph = form->graphs[*condition ? 0 : 1];
    } else {
        for (size_t i = form->first; i < form->first + form->states + form->sequences.size(); ++i) {
            if (!input(i)) return std::optional<std::vector<Datum>>();
            own.push_back(*input(i));
        }
        auto count = form->trips ? whole_number(*input(*form->trips)) : trips;
        auto condition = form->condition ? whole_number(*input(*form->condition)) : 1;
        if (!count || !condition) return std::optional<std::vector<Datum>>();
        trips = *count;
        go_on = *condition != 0;
        if (!form->sequences.empty() && own[form->states].is_tensor() && own[form->states].tensor().rank() > 0)
            trips = own[form->states].tensor().size(0);
    }
    const LoadedProgram::Nested* nested = loaded_.nested_of(*graph);
    if (!nested) return std::optional<std::vector<Datum>>();
    std::vector<Datum> captured;
    for (const Value* v : nested->captured) {
        const Datum* d = find(v);
        if (!d) return std::optional<std::vector<Datum>>();
        captured.push_back(*d);
    }
    const RunOptions options = inner_options();
    auto results = [&]() -> Result<std::optional<std::vector<Datum>>> {
        if (form->graphs.size() == 2) return std::optional(TRY(nested->loaded->run_bound(captured, options)));
        return Repetition(*nested->loaded, *form, options).run(own, captured, trips, go_on);
    }();
    if (!results.ok() && results.error().code() != Code::E0410) return std::optional<std::vector<Datum>>();
    return results;
}

}  // namespace tessera
