#include <cmath>
#include <complex>

#include "base/check.h"
#include "graph/evaluate/bind_inputs.h"
#include "graph/wider_floats.h"
#include "runtime/difference.h"
#include "runtime/run.h"

namespace tessera {
namespace {

// The buffer's tensor with its dimensions in the value's order.
Result<Tensor> in_value_order(const Tensor& t, const std::vector<int>& order) {
    if (order.empty()) return t;
    const auto rank = static_cast<size_t>(t.rank());
    CHECK(order.size() == rank, "an order of {} axes for {} dimensions", order.size(), rank);
    Sizes sizes(rank), strides(rank);  // by the value's axis; strides in the buffer
    int64_t stride = 1;
    for (size_t d = rank; d-- > 0; stride *= t.size(static_cast<int64_t>(d))) {
        sizes[static_cast<size_t>(order[d])] = t.size(static_cast<int64_t>(d));
        strides[static_cast<size_t>(order[d])] = stride;
    }
    Tensor out = TRY(Tensor::zeros(t.dtype(), sizes));
    const size_t width = dtype_bytes(t.dtype());
    std::vector<int64_t> at(rank);
    for (int64_t i = 0; i < out.elements(); ++i) {
        int64_t from = 0;
        for (size_t d = 0; d < rank; ++d) from += at[d] * strides[d];
        std::memcpy(static_cast<char*>(out.mutable_data()) + static_cast<size_t>(i) * width,
                    static_cast<const char*>(t.data()) + static_cast<size_t>(from) * width, width);
        for (size_t d = rank; d-- > 0;) {
            if (++at[d] < sizes[d]) break;
            at[d] = 0;
        }
    }
    return out;
}

// What values should be, from the buffers that were filled before a step: nodes in between are evaluated.
class Expected {
  public:
    Expected(const Program& program, const ProgramLayout& layout, const Run& run, const std::vector<int>& written,
             int step)
        : program_(program), layout_(layout), run_(run), written_(written), step_(step) {}

    Result<const Datum*> of(const Value* v) {
        if (auto at = known_.find(v); at != known_.end()) return &at->second;
        if (auto held = TRY(from_buffer(v))) return &(known_[v] = std::move(*held));
        if (v->tensor()) return &(known_[v] = Datum(*v->tensor()));
        CHECK(v->node(), "input \"{}\" is in no buffer", v->name());
        for (const Value* in : v->node()->inputs())
            if (in) TRY(of(in));
        for (const Value* in : captured_values(*v->node())) TRY(of(in));
        auto results = TRY(evaluator_.run(*v->node(), [&](const Value* in) -> const Datum* {
            auto at = known_.find(in);
            return at == known_.end() ? nullptr : &at->second;
        }));
        for (size_t i = 0; i < results.size(); ++i) known_[v->node()->output(i)] = std::move(results[i]);
        return &known_[v];
    }

    // The same, where nothing is rounded to 16 bits between what is in buffers and the value; nothing where its nodes
    // have no such form.
    Result<std::optional<Tensor>> without_rounding(const Value* v) {
        Graph graph("wide");
        std::unordered_map<const Value*, Value*> map;
        if (!add_wide(graph, v, map).ok()) return std::optional<Tensor>();
        graph.add_output(map.at(v), v->name());
        auto results = evaluate(graph, {});
        if (!results.ok() || !(*results)[0].is_tensor()) return std::optional<Tensor>();
        const Tensor& wide = (*results)[0].tensor();
        Tensor narrow = TRY(Tensor::zeros(v->type().tensor().dtype, wide.sizes()));
        for (int64_t i = 0; i < wide.elements(); ++i) narrow.set_real(i, wide.real_at(i));
        return std::optional(std::move(narrow));
    }

  private:
    Status add_wide(Graph& graph, const Value* v, std::unordered_map<const Value*, Value*>& map) {
        if (map.contains(v)) return {};
        auto held = TRY(from_buffer(v));
        if (!held && v->tensor()) held = Datum(*v->tensor());
        if (held) {
            if (!held->is_tensor()) return Error(Code::E0208, "\"{}\" is not a tensor", v->name());
            map[v] = graph.constant(TRY(widened(held->tensor(), kHalvesToSingles)), v->name());
            return {};
        }
        CHECK(v->node(), "input \"{}\" is in no buffer", v->name());
        for (const Value* in : v->node()->inputs())
            if (in) TRY(add_wide(graph, in, map));
        return add_widened(graph, *v->node(), map, kHalvesToSingles);
    }

    Result<std::optional<Datum>> from_buffer(const Value* v) {
        for (size_t b = 0; b < program_.buffers.size(); ++b) {
            const ProgramBuffer& buffer = program_.buffers[b];
            if (buffer.value != v || written_[static_cast<size_t>(layout_.root[b])] >= step_) continue;
            if (!layout_.in_run[static_cast<size_t>(layout_.root[b])]) continue;
            Datum d = TRY(run_.datum(static_cast<int>(b)));
            if (!d.is_tensor()) return std::optional(d);
            return std::optional(Datum(TRY(in_value_order(d.tensor(), buffer.order))));
        }
        return std::optional<Datum>();
    }

    const Program& program_;
    const ProgramLayout& layout_;
    const Run& run_;
    const std::vector<int>& written_;
    int step_;
    EvaluateOptions options_;
    NodeEvaluator evaluator_{options_};
    std::unordered_map<const Value*, Datum> known_;
};

// A copy of what another device computed.
const CopyStep* copy_back(const Program& program, const Step& step) {
    const auto* copy = std::get_if<CopyStep>(&step);
    return copy && program.buffers[static_cast<size_t>(copy->to)].device == 0 ? copy : nullptr;
}

// What the parts of a graph should be that other devices compute.
class CheckedParts {
  public:
    explicit CheckedParts(const Program& program) {
        for (const Step& step : program.steps)
            if (const auto* own = std::get_if<DeviceStep>(&step)) code_.emplace(own->node, own->code.get());
    }

    Result<Tensor> of(const Value& output, Expected& expected) const {
        const Node& node = *output.node();
        const auto graph = TRY(code_.at(&node)->reference(node.view().graph("body")));
        NamedData inputs;
        for (size_t i = 0; i < node.inputs().size(); ++i)
            inputs.emplace(graph->inputs()[i]->name(), *TRY(expected.of(node.input(i))));
        std::vector<Datum> results = TRY(evaluate(*graph, inputs));
        for (size_t i = 0; i < node.output_count(); ++i)
            if (node.output(i) == &output) return results[i].tensor();
        CHECK(false, "\"{}\" is no output of its node", output.name());
    }

  private:
    std::unordered_map<const Node*, const DeviceCode*> code_;
};

}  // namespace

Result<std::vector<std::pair<std::string, double>>> LoadedProgram::check(const NamedData& inputs) const {
    if (!complete_)
        return Error(Code::E0501, "there is nothing to check against: the weights were not kept")
            .hint("compile with keep_weights");
    TRY(check_places(inputs));
    std::vector<Datum> bound = TRY(bind_inputs(*program_.graph, inputs));
    const SymbolValues symbols = TRY(plan_for(bound))->symbols;
    // Nothing is written over, so that what every step read is still there.
    auto plan = std::make_shared<const RunPlan>(
        TRY(plan_run(program_, layout_, *module_, symbols, {.threads = threads_, .reuse = false})));
    auto owned = TRY(RunContext::make(device_, threads_));
    RunContext& context = *owned;
    TRY(prepare(context, plan));
    RunOptions options;
    Run run(*this, context, options);
    TRY(run.begin(bound));

    const CheckedParts parts(program_);
    std::vector<int> written(program_.buffers.size(), -1);  // by root: the step after which it is whole
    for (size_t i = 0; i < program_.steps.size(); ++i) {
        auto write = [&](int b) {
            written[static_cast<size_t>(layout_.root[static_cast<size_t>(b)])] = static_cast<int>(i);
        };
        if (auto* kernel = std::get_if<KernelStep>(&program_.steps[i])) {
            for (size_t k = 0; k < kernel->args.size(); ++k)
                if (layout_.access[kernel->kernel].writes[k]) write(kernel->args[k]);
        }
        for (int b : values_made(program_.steps[i]))
            if (b >= 0) write(b);
        if (const CopyStep* back = copy_back(program_, program_.steps[i])) write(back->to);
    }

    std::vector<std::pair<std::string, double>> differences;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
        TRY(run.step(i));
        TRY(run.finish(i));
        Expected expected(program_, layout_, run, written, static_cast<int>(i));
        if (const CopyStep* back = copy_back(program_, program_.steps[i])) {
            const Value* value = program_.buffers[static_cast<size_t>(back->to)].value;
            CHECK(value, "a copy from a device fills a buffer without a value");
            const Datum got = TRY(run.datum(back->to));
            differences.emplace_back(back->node->name(), relative_difference(got.tensor(), TRY(parts.of(*value, expected))));
        }
        auto* kernel = std::get_if<KernelStep>(&program_.steps[i]);
        if (!kernel) continue;
        double most = 0;
        for (size_t k = 0; k < kernel->args.size(); ++k) {
            const auto b = static_cast<size_t>(kernel->args[k]);
            const ProgramBuffer& buffer = program_.buffers[b];
            if (!buffer.value || written[static_cast<size_t>(layout_.root[b])] != static_cast<int>(i)) continue;
            const Datum* want = TRY(expected.of(buffer.value));
            Datum raw = TRY(run.datum(static_cast<int>(b)));
            Tensor got = TRY(in_value_order(raw.tensor(), buffer.order));
            double difference = relative_difference(got, want->tensor());
            if (difference > 0 && (got.dtype() == DType::f16 || got.dtype() == DType::bf16))
                if (const auto wide = TRY(expected.without_rounding(buffer.value)))
                    difference = relative_difference(got, want->tensor(), &*wide);
            most = std::max(most, difference);
        }
        differences.emplace_back(kernel->label, most);
    }
    return differences;
}

}  // namespace tessera
