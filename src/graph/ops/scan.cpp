// Scan: a loop over slices of its inputs that carries a state and collects what each step gives.
#include <algorithm>
#include <limits>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/nested.h"
#include "graph/ops/nested_gradient.h"
#include "graph/ops/tensor_slices.h"

namespace tessera {
namespace {

// The inputs are states and sequences; a batched scan (opset 8) may have the sequences' lengths after them.
struct ScanForm {
    size_t states = 0, sequences = 0, collected = 0;
    bool batched = false;
    std::vector<int64_t> input_axes, output_axes;  // output axes may count from the end
    std::vector<bool> input_reversed, output_reversed;
    bool has_lengths = false;
};

Result<std::vector<bool>> directions(const OpView& op, const char* name, size_t count) {
    auto given = op.ints_or(name, std::vector<int64_t>(count, 0));
    if (given.size() != count) return op.error(Code::E0212, "{} has {} entries, not {}", name, given.size(), count);
    std::vector<bool> reversed;
    for (int64_t d : given) {
        if (d != 0 && d != 1) return op.error(Code::E0212, "{} has {}, not 0 or 1", name, d);
        reversed.push_back(d == 1);
    }
    return reversed;
}

Result<ScanForm> scan_form(const OpView& op) {
    const Graph& body = op.graph("body");
    ScanForm f;
    f.batched = op.integer("batched") != 0;
    int64_t sequences = op.integer("num_scan_inputs"), steps = body.inputs().size();
    f.has_lengths = f.batched && int64_t(op.input_count()) == steps + 1;
    if (sequences < 1 || sequences > steps || int64_t(op.input_count()) != steps + f.has_lengths)
        return op.error(Code::E0207, "{} inputs, {} of them scanned, but the body takes {}", op.input_count(),
                        sequences, steps);
    f.sequences = sequences, f.states = steps - sequences;
    if (body.outputs().size() < f.states || op.output_count() > body.outputs().size())
        return op.error(Code::E0207, "the body has {} outputs for {} states, but the node has {}",
                        body.outputs().size(), f.states, op.output_count());
    f.collected = body.outputs().size() - f.states;
    f.input_reversed = TRY(directions(op, "scan_input_directions", f.sequences));
    f.output_reversed = TRY(directions(op, "scan_output_directions", f.collected));
    f.output_axes = op.ints_or("scan_output_axes", std::vector<int64_t>(f.collected, 0));
    auto axes = op.ints_or("scan_input_axes", std::vector<int64_t>(f.sequences, 0));
    if (axes.size() != f.sequences || f.output_axes.size() != f.collected)
        return op.error(Code::E0212, "scan_input_axes and scan_output_axes have {} and {} entries, not {} and {}",
                        axes.size(), f.output_axes.size(), f.sequences, f.collected);
    for (size_t i = 0; i < op.input_count(); ++i) {
        if (!op.has(i)) return op.error(Code::E0207, "input {} is missing", i);
        if (!op.type(i).is_tensor()) return op.error(Code::E0208, "input {} must be a tensor, is {}", i, op.type(i));
        if (f.batched && op.shape(i).ranked() && op.rank(i) < 1)
            return op.shape_error("input {} must have a batch dimension, is {}", i, op.shape(i));
    }
    for (size_t i = 0; i < f.sequences; ++i) {
        const Shape& x = op.shape(f.states + i);
        if (f.batched && x.ranked() && x.rank() < 2)
            return op.shape_error("input {} must have a batch and a sequence dimension, is {}", f.states + i, x);
        if (f.batched)
            f.input_axes.push_back(0);  // of what is left without the batch
        else
            f.input_axes.push_back(x.ranked() ? TRY(op.axis(axes[i], x.rank())) : axes[i]);
    }
    return f;
}

Result<Types> infer_scan(const OpView& op) {
    ScanForm f = TRY(scan_form(op));
    const Graph& body = op.graph("body");
    std::optional<Dim> length, batch;
    auto agree = [&](std::optional<Dim>& known, const Dim& d, size_t input, const char* what) -> Status {
        if (known && known->as_int() && d.as_int() && *known != d)
            return op.shape_error("input {} {} {}, but another one {}", input, what, to_string(d), to_string(*known));
        if (!known || !known->as_int()) known = d;
        return {};
    };
    for (size_t i = 0; i < f.states + f.sequences; ++i) {
        const Shape& x = op.shape(i);
        if (!x.ranked()) continue;
        if (f.batched) TRY(agree(batch, x[0], i, "has a batch of"));
        if (i >= f.states) TRY(agree(length, x[f.input_axes[i - f.states] + f.batched], i, "scans"));
    }
    Types types;
    for (size_t i = 0; i < body.outputs().size(); ++i) {
        const size_t stacked_on = (i >= f.states) + f.batched;
        Type inside = seen_outside(op, body, body.outputs()[i]->type(), i, stacked_on);
        if (!inside.is_tensor()) return op.error(Code::E0208, "the body returns {}, not a tensor", inside);
        if (i >= f.states) {
            const Shape& element = inside.tensor().shape;
            int64_t axis = f.output_axes[i - f.states];
            if (element.ranked()) axis = TRY(op.axis(axis, element.rank() + 1));
            inside = stacked(inside, length.value_or(op.fresh(i, stacked_on - 1)), axis);
        }
        if (f.batched) inside = stacked(inside, batch.value_or(op.fresh(i, 0)), 0);
        types.push_back(i < f.states ? TRY(carried_type(op, op.type(i), inside, i)) : inside);
    }
    return types;
}

constexpr int64_t kWorkPerStep = 1 << 14;  // what one step costs besides its nodes

struct Scanned {
    std::vector<Datum> states;
    std::vector<std::vector<Tensor>> collected;  // in the order of the steps
};

Result<Scanned> run_steps(const OpView& op, EvalContext& ctx, const ScanForm& f, std::vector<Datum> states,
                          const std::vector<Tensor>& sequences, int64_t length) {
    Scanned out{std::move(states), {}};
    out.collected.resize(f.collected);
    for (int64_t step = 0; step < length; ++step) {
        TRY(ctx.spend(kWorkPerStep));
        std::vector<Datum> inputs = std::move(out.states);
        for (size_t i = 0; i < f.sequences; ++i)
            inputs.push_back(TRY(take(sequences[i], f.input_axes[i], f.input_reversed[i] ? length - 1 - step : step)));
        std::vector<Datum> results = TRY(ctx.run(op.graph("body"), std::move(inputs)));
        out.states.assign(results.begin(), results.begin() + f.states);
        for (size_t i = 0; i < f.collected; ++i) {
            if (!results[f.states + i].is_tensor()) return op.error(Code::E0407, "collects tensors only");
            out.collected[i].push_back(results[f.states + i].tensor());
        }
    }
    return out;
}

// What was collected, along its axis; `missing` elements of zeros follow it.
Result<Tensor> joined(const OpView& op, const ScanForm& f, size_t i, std::vector<Tensor> parts, int64_t missing) {
    if (f.output_reversed[i]) std::reverse(parts.begin(), parts.end());
    const TensorType& element = op.graph("body").outputs()[f.states + i]->type().tensor();
    Sizes sizes;
    if (!parts.empty())
        sizes = parts[0].sizes();
    else
        for (const Dim& d : element.shape) sizes.push_back(d.as_int().value_or(0));
    int64_t axis = TRY(op.axis(f.output_axes[i], int64_t(sizes.size()) + 1));
    if (missing > 0) {
        DType dtype = parts.empty() ? element.dtype : parts[0].dtype();
        Tensor zeros = TRY(Tensor::zeros(dtype, sizes));
        parts.insert(parts.end(), missing, zeros);
    }
    if (!parts.empty()) return stack_tensors(parts, axis);
    sizes.insert(sizes.begin() + axis, 0);
    return Tensor::zeros(element.dtype, sizes);
}

Result<std::vector<Datum>> evaluate_scan(const OpView& op, EvalContext& ctx) {
    ScanForm f = TRY(scan_form(op));
    if (!f.batched) {
        std::vector<Datum> states;
        std::vector<Tensor> sequences;
        for (size_t i = 0; i < f.states; ++i) states.push_back(ctx.in(i));
        for (size_t i = 0; i < f.sequences; ++i) sequences.push_back(ctx.tensor(f.states + i));
        Scanned done = TRY(run_steps(op, ctx, f, std::move(states), sequences, sequences[0].size(f.input_axes[0])));
        std::vector<Datum> out = std::move(done.states);
        for (size_t i = 0; i < f.collected; ++i)
            out.push_back(op.wants(f.states + i) ? Datum(TRY(joined(op, f, i, std::move(done.collected[i]), 0)))
                                                 : Datum());
        return out;
    }
    int64_t batch = ctx.tensor(0).size(0), longest = ctx.tensor(f.states).size(1);
    std::vector<std::vector<Tensor>> rows(f.states + f.collected);
    if (f.has_lengths && ctx.tensor(op.input_count() - 1).elements() != batch)
        return op.shape_error("{} lengths for a batch of {}", ctx.tensor(op.input_count() - 1).elements(), batch);
    for (int64_t b = 0; b < batch; ++b) {
        int64_t length = f.has_lengths ? ctx.tensor(op.input_count() - 1).int_at(b) : longest;
        if (length < 0 || length > longest) return op.error(Code::E0407, "length {} of {}", length, longest);
        std::vector<Datum> states;
        std::vector<Tensor> sequences;
        for (size_t i = 0; i < f.states; ++i) states.push_back(TRY(take(ctx.tensor(i), 0, b)));
        for (size_t i = 0; i < f.sequences; ++i) sequences.push_back(TRY(take(ctx.tensor(f.states + i), 0, b)));
        Scanned done = TRY(run_steps(op, ctx, f, std::move(states), sequences, length));
        for (size_t i = 0; i < f.states; ++i) {
            if (!done.states[i].is_tensor()) return op.error(Code::E0407, "carries tensors only");
            rows[i].push_back(done.states[i].tensor());
        }
        for (size_t i = 0; i < f.collected; ++i)
            rows[f.states + i].push_back(TRY(joined(op, f, i, std::move(done.collected[i]), longest - length)));
    }
    std::vector<Datum> out;
    for (auto& parts : rows) {
        if (parts.empty()) return op.error(Code::E0407, "has an empty batch");
        out.push_back(TRY(stack_tensors(parts, 0)));
    }
    return out;
}

// Opset 8 scanned axis 1 of a batch, with lengths as an optional first input.
Status batch_before_9(OnnxCall& call) {
    call.attrs["batched"] = int64_t{1};
    if (auto node = call.attrs.extract("directions")) {
        node.key() = "scan_input_directions";
        call.attrs.insert(std::move(node));
    }
    if (call.inputs.empty()) return {};
    Value* lengths = call.inputs[0];
    call.inputs.erase(call.inputs.begin());
    if (lengths) call.inputs.push_back(lengths);
    return {};
}

Status batch_to_8(OnnxCall& call) {
    if (!call.attrs.erase("batched")) return Error(Code::E0214, "Scan: scans a batch before opset 9");
    auto body = call.attrs.find("body");
    Value* lengths = nullptr;
    if (auto* g = body == call.attrs.end() ? nullptr : std::get_if<GraphPtr>(&body->second);
        g && call.inputs.size() > (*g)->inputs().size()) {
        lengths = call.inputs.back();
        call.inputs.pop_back();
    }
    call.inputs.insert(call.inputs.begin(), lengths);
    if (auto node = call.attrs.extract("scan_input_directions")) {
        node.key() = "directions";
        call.attrs.insert(std::move(node));
    }
    return {};
}

const OpDef kScan{
    .name = "scan",
    .inputs = {"inputs...: *"},
    .outputs = {"outputs...: *"},
    .attrs = {graph_attr("body").required(), int_attr("num_scan_inputs").required(), ints_attr("scan_input_axes"),
              ints_attr("scan_input_directions"), ints_attr("scan_output_axes"), ints_attr("scan_output_directions"),
              int_attr("batched", 0)},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = {"Scan",
             {{9, batch_before_9, batch_to_8},
              {std::numeric_limits<int>::max(), [](OnnxCall&) -> Status { return {}; },
               [](OnnxCall& call) -> Status {
                   auto it = call.attrs.find("batched");
                   if (it == call.attrs.end()) return {};
                   if (it->second == Attr(int64_t{0}))
                       call.attrs.erase(it);
                   else if (call.opset >= 9)
                       return Error(Code::E0214, "Scan: a batch is scanned at opset 8 only");
                   return {};
               }}}},
    .infer = infer_scan,
    .evaluate = evaluate_scan,
    .control = [](const OpView& op) -> std::optional<ControlForm> {
        auto form = scan_form(op);
        if (!form.ok() || form->batched) return std::nullopt;
        auto other = [](int64_t axis) { return axis != 0; };
        if (std::any_of(form->input_axes.begin(), form->input_axes.end(), other) ||
            std::any_of(form->output_axes.begin(), form->output_axes.end(), other))
            return std::nullopt;
        ControlForm control{.graphs = {&op.graph("body")}, .states = form->states};
        control.sequences = form->input_reversed;
        control.collected = form->output_reversed;
        return control;
    },
    .iterations = [](const OpView& op) -> std::optional<Expr> {
        if (op.integer("batched")) return std::nullopt;
        const int64_t scanned = op.integer("num_scan_inputs"), first = int64_t(op.input_count()) - scanned;
        if (scanned < 1 || first < 0) return std::nullopt;
        const Type& type = op.type(size_t(first));
        if (!type.is_tensor() || !type.tensor().shape.ranked()) return std::nullopt;
        const Shape& shape = type.tensor().shape;
        std::vector<int64_t> axes = op.ints_or("scan_input_axes", {0});
        const int64_t axis = axes.empty() ? 0 : axes[0];
        return axis >= -shape.rank() && axis < shape.rank() ? std::optional(shape[axis]) : std::nullopt;
    },
    .gradient = back_through_scan,
};

}  // namespace

std::vector<OpDef> scan_ops() { return {kScan}; }

}  // namespace tessera
