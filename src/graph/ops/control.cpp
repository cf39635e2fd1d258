// Control flow over nested graphs: if, loop, sequence_map. (Scan is in scan.cpp.)
#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/nested.h"
#include "graph/ops/nested_gradient.h"
#include "graph/ops/tensor_slices.h"

namespace tessera {
namespace {

// The only element of a tensor that should have one.
Result<int64_t> single(const OpView& op, const Datum& d, const char* what) {
    if (!d.is_tensor() || d.tensor().elements() != 1 || d.tensor().dtype() == DType::string)
        return op.error(Code::E0407, "{} must be one element, is {}", what, type_of(d));
    return d.tensor().int_at(0);
}

const OpDef kIf{
    .name = "if",
    .inputs = {"condition: bool"},
    .outputs = {"outputs...: *"},
    .attrs = {graph_attr("then_branch").required(), graph_attr("else_branch").required()},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = "If",
    .infer = [](const OpView& op) -> Result<Types> {
        const auto &a = op.graph("then_branch").outputs(), &b = op.graph("else_branch").outputs();
        if (!op.graph("then_branch").inputs().empty() || !op.graph("else_branch").inputs().empty())
            return op.error(Code::E0207, "the branches must not take inputs");
        if (a.size() != b.size() || a.size() < op.output_count())
            return op.error(Code::E0207, "the branches have {} and {} outputs, but the node has {}", a.size(), b.size(),
                            op.output_count());
        Types types;
        for (size_t i = 0; i < a.size(); ++i) {
            auto both = join(seen_outside(op, op.graph("then_branch"), a[i]->type(), i),
                             seen_outside(op, op.graph("else_branch"), b[i]->type(), i), output_name(op, i));
            if (!both)
                return op.error(Code::E0208, "output {} is {} in one branch, {} in the other", i, a[i]->type(),
                                b[i]->type());
            types.push_back(*both);
        }
        return types;
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        bool taken = TRY(single(op, ctx.in(0), "the condition"));
        return ctx.run(op.graph(taken ? "then_branch" : "else_branch"), {});
    },
    .control = [](const OpView& op) -> std::optional<ControlForm> {
        return ControlForm{.graphs = {&op.graph("then_branch"), &op.graph("else_branch")}};
    },
};

// The values that a loop carries: all inputs but the trip count and the condition.
size_t carried_count(const OpView& op) { return op.input_count() > 2 ? op.input_count() - 2 : 0; }

// The sizes that a body's inputs from number `first` on have with these values.
SymbolValues sizes_of(const Graph& body, size_t first, const std::vector<Datum>& values) {
    SymbolValues symbols;
    for (size_t i = 0; i < values.size(); ++i) {
        const Type& type = body.inputs()[first + i]->type();
        if (!values[i].is_tensor() || !type.is_tensor() || !type.tensor().shape.ranked()) continue;
        const Sizes& sizes = values[i].tensor().sizes();
        for (size_t d = 0; d < sizes.size() && static_cast<int64_t>(d) < type.tensor().shape.rank(); ++d)
            if (const Dim& dim = type.tensor().shape[static_cast<int64_t>(d)]; dim.is(ExprKind::Var))
                symbols.emplace(dim.node().name, sizes[d]);
    }
    return symbols;
}

// An empty stack of what the body would give. A size that nobody knows is 0.
Result<Datum> no_elements(const Type& element, const SymbolValues& symbols) {
    Sizes sizes{0};
    for (const Dim& d : element.tensor().shape) sizes.push_back(evaluate_int(d, symbols).value_or(0));
    return Datum(TRY(Tensor::zeros(element.tensor().dtype, sizes)));
}

// A scalar, in the shape in which a body declares it (some write [1]).
Datum declared_scalar(Tensor t, const Value& input) {
    bool vector = input.type().is_tensor() && input.type().tensor().shape.ranked() && input.type().tensor().rank() == 1;
    return vector ? t.reshaped({1}) : t;
}

constexpr int64_t kWorkPerTrip = 1 << 14;  // what one trip costs besides its nodes

const OpDef kLoop{
    .name = "loop",
    .inputs = {"trips?: i64", "condition?: bool", "carried...: *"},
    .outputs = {"outputs...: *"},
    .attrs = {graph_attr("body").required()},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = "Loop",
    .infer = [](const OpView& op) -> Result<Types> {
        const Graph& body = op.graph("body");
        size_t carried = carried_count(op);
        if (body.inputs().size() != carried + 2)
            return op.error(Code::E0207,
                            "the body takes {} inputs instead of an iteration number, a condition and {} values",
                            body.inputs().size(), carried);
        if (body.outputs().size() < carried + 1 || body.outputs().size() - 1 < op.output_count())
            return op.error(Code::E0207,
                            "the body has {} outputs, but {} values are carried and the node has {} outputs",
                            body.outputs().size(), carried, op.output_count());
        Types types;
        for (size_t i = 0; i + 1 < body.outputs().size(); ++i) {
            Type inside = seen_outside(op, body, body.outputs()[i + 1]->type(), i, i < carried ? 0 : 1);
            if (i < carried) {
                if (!op.has(i + 2)) return op.error(Code::E0207, "carried value {} has no initial value", i);
                types.push_back(TRY(carried_type(op, op.type(i + 2), inside, i)));
                continue;
            }
            if (!inside.is_tensor())
                return op.error(Code::E0208, "output {} collects tensors, but the body returns {}", i, inside);
            auto trips = op.has(0) && !op.has(1) ? op.constant_ints(0) : std::nullopt;
            Dim count = trips && trips->size() == 1 ? Dim(std::max<int64_t>((*trips)[0], 0)) : op.fresh(i, 0);
            types.push_back(stacked(inside, count, 0));
        }
        return types;
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Graph& body = op.graph("body");
        size_t carried = carried_count(op);
        int64_t trips = op.has(0) ? TRY(single(op, ctx.in(0), "the trip count")) : INT64_MAX;
        bool go_on = op.has(1) ? TRY(single(op, ctx.in(1), "the condition")) : true;
        std::vector<Datum> state;
        for (size_t i = 0; i < carried; ++i) state.push_back(ctx.in(i + 2));
        std::vector<std::vector<Tensor>> collected(body.outputs().size() - 1 - carried);
        for (int64_t trip = 0; trip < trips && go_on; ++trip) {
            TRY(ctx.spend(kWorkPerTrip));
            std::vector<Datum> inputs;
            inputs.push_back(declared_scalar(Tensor::scalar(trip), *body.inputs()[0]));
            inputs.push_back(declared_scalar(Tensor::scalar(go_on), *body.inputs()[1]));
            for (Datum& d : state) inputs.push_back(std::move(d));
            std::vector<Datum> results = TRY(ctx.run(body, std::move(inputs)));
            if (op.has(1)) go_on = TRY(single(op, results[0], "the body's condition"));
            for (size_t i = 0; i < carried; ++i) state[i] = std::move(results[i + 1]);
            for (size_t i = 0; i < collected.size(); ++i) {
                if (!results[carried + 1 + i].is_tensor()) return op.error(Code::E0407, "collects tensors only");
                collected[i].push_back(results[carried + 1 + i].tensor());
            }
        }
        const SymbolValues sizes = sizes_of(body, 2, state);
        for (size_t i = 0; i < collected.size(); ++i) {
            if (!op.wants(carried + i))
                state.push_back({});
            else if (collected[i].empty())
                state.push_back(TRY(no_elements(body.outputs()[carried + 1 + i]->type(), sizes)));
            else
                state.push_back(TRY(stack_tensors(collected[i], 0)));
        }
        return state;
    },
    .control = [](const OpView& op) -> std::optional<ControlForm> {
        const Graph& body = op.graph("body");
        ControlForm form{.graphs = {&body}, .numbered = true, .first = 2, .states = carried_count(op)};
        if (op.has(0)) form.trips = 0;
        if (op.has(1)) form.condition = 1;
        form.collected.assign(body.outputs().size() - 1 - form.states, false);
        return form;
    },
    .iterations = [](const OpView& op) -> std::optional<Expr> {
        if (!op.has(0) || op.has(1)) return std::nullopt;
        auto trips = op.contents(0);
        return trips && trips->size() == 1 ? std::optional((*trips)[0]) : std::nullopt;
    },
};

const OpDef kSequenceMap{
    .name = "sequence_map",
    .inputs = {"sequence: *", "more...: *"},
    .outputs = {"outputs...: *"},
    .attrs = {graph_attr("body").required()},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = "SequenceMap",
    .infer = [](const OpView& op) -> Result<Types> {
        const Graph& body = op.graph("body");
        if (!op.type(0).is_sequence()) return op.error(Code::E0208, "input 0 must be a sequence, is {}", op.type(0));
        if (body.inputs().size() != op.input_count() || body.outputs().size() < op.output_count())
            return op.error(Code::E0207, "the body has {} inputs and {} outputs, not {} and {}", body.inputs().size(),
                            body.outputs().size(), op.input_count(), op.output_count());
        Types types;
        for (size_t i = 0; i < body.outputs().size(); ++i)
            types.push_back(Type::sequence(seen_outside(op, body, body.outputs()[i]->type(), i)));
        return types;
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Graph& body = op.graph("body");
        size_t length = ctx.in(0).items().size();
        for (size_t i = 0; i < op.input_count(); ++i) {
            if (!op.has(i)) return op.error(Code::E0207, "input {} is missing", i);
            if (ctx.in(i).is_sequence() && ctx.in(i).items().size() != length)
                return op.error(Code::E0407, "sequences 0 and {} have {} and {} items", i, length,
                                ctx.in(i).items().size());
        }
        std::vector<std::vector<Datum>> mapped(body.outputs().size());
        for (size_t item = 0; item < length; ++item) {
            TRY(ctx.spend(kWorkPerTrip));
            std::vector<Datum> inputs;
            for (size_t i = 0; i < op.input_count(); ++i)
                inputs.push_back(ctx.in(i).is_sequence() ? ctx.in(i).items()[item] : ctx.in(i));
            std::vector<Datum> results = TRY(ctx.run(body, std::move(inputs)));
            for (size_t i = 0; i < mapped.size(); ++i) mapped[i].push_back(std::move(results[i]));
        }
        std::vector<Datum> out;
        for (auto& items : mapped) out.push_back(Datum::sequence(std::move(items)));
        return out;
    },
};

// A part of a graph that another device than the one of the kernels computes. Lowering makes such nodes
// (kernel/backend/offload.h); their semantics are those of the part.
const OpDef kOffload{
    .name = "offload",
    .inputs = {"inputs...: *"},
    .outputs = {"outputs...: *"},
    .attrs = {graph_attr("body").required()},
    .traits = {Trait::Pure},
    .infer = [](const OpView& op) -> Result<Types> {
        const Graph& body = op.graph("body");
        if (body.inputs().size() != op.input_count() || body.outputs().size() < op.output_count())
            return op.error(Code::E0207, "the body has {} inputs and {} outputs, not {} and {}", body.inputs().size(),
                            body.outputs().size(), op.input_count(), op.output_count());
        Types types;
        for (size_t i = 0; i < body.outputs().size(); ++i)
            types.push_back(seen_outside(op, body, body.outputs()[i]->type(), i));
        return types;
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        std::vector<Datum> inputs;
        for (size_t i = 0; i < op.input_count(); ++i) inputs.push_back(ctx.in(i));
        return ctx.run(op.graph("body"), std::move(inputs));
    },
    .no_kernel = "another device computes it",
};

}  // namespace

std::vector<OpDef> control_ops() {
    constexpr const char* kWhy = "how often its body runs is known only when it runs; a scan has a derivative";
    return {differentiable(kIf, back_through_if), without_gradient(kLoop, kWhy), without_gradient(kSequenceMap, kWhy),
            without_gradient(kOffload, "it is made when gradients are there")};
}

}  // namespace tessera
