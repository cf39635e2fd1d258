// Softmax, its logarithm, and hardmax.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// Before opset 13 these ran over all of the dimensions from `axis` on, flattened.
OnnxChange flattened_before_13(const char* name) {
    return {
        13,
        [name](OnnxCall& call) -> Status {
            int64_t axis = 1;
            if (auto it = call.attrs.find("axis"); it != call.attrs.end()) {
                if (!std::holds_alternative<int64_t>(it->second))
                    return Error(Code::E0206, "{}: attribute \"axis\" must be of kind int", call.op_type);
                axis = std::get<int64_t>(it->second);
            }
            if (!call.has(0)) return {};
            Value* x = call.inputs[0];
            const Type& type = x->type();
            if (type.is_tensor() && type.tensor().shape.ranked() && (axis == -1 || axis == type.tensor().rank() - 1)) {
                call.attrs.erase("axis");
                return {};
            }
            Builder& b = call.build;
            Value* y = b.op(name, {b.op("flatten", {x}, {{"axis", Attr(axis)}})});
            call.result = {b.op("reshape", {y, b.op("shape", {x})})};
            return b.status();
        },
        [](OnnxCall& call) -> Status {
            int64_t axis = -1;
            if (auto it = call.attrs.find("axis"); it != call.attrs.end()) axis = std::get<int64_t>(it->second);
            const Type& type = call.inputs.at(0)->type();
            bool ranked = type.is_tensor() && type.tensor().shape.ranked();
            if (axis != -1 && (!ranked || axis != type.tensor().rank() - 1))
                return Error(Code::E0214, "{}: reducing over axis {} alone, without the axes after it, needs opset 13",
                             call.op_type, axis);
            call.attrs["axis"] = ranked ? type.tensor().rank() - 1 : int64_t{-1};
            return {};
        },
    };
}

Result<Types> infer_along_axis(const OpView& op) {
    TRY(op.axis(op.integer("axis"), op.rank(0)));
    return op.same(0);
}

// y*(g - sum(g*y)), and g - exp(y)*sum(g): without the largest element, which only keeps the exponentials small.
// Differences and sums of narrow floats are of wider ones.
Gradients back_through_softmax(const Backward& r) {
    const DType own = r.out->type().tensor().dtype, wide = own == DType::f64 ? DType::f64 : DType::f32;
    Value *g = r.b.cast(r.g, wide), *y = r.b.cast(r.out, wide);
    Value* along = r.b.reduce("reduce_sum", r.b.mul(g, y), {r.node.view().integer("axis")});
    return {r.b.cast(r.b.mul(y, r.b.sub(g, along)), own)};
}

Gradients back_through_log_softmax(const Backward& r) {
    Value* along = r.b.reduce("reduce_sum", r.g, {r.node.view().integer("axis")});
    return {r.b.sub(r.g, r.b.mul(r.b.op("exp", {r.out}), along))};
}

const OpDef kSoftmax{
    .name = "softmax",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis", -1)},
    .types = {{"T", kWideFloats}},
    .onnx = {"Softmax", {flattened_before_13("softmax")}},
    .infer = infer_along_axis,
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        int64_t axis = op.integer("axis");
        Value* e = b.op("exp", {b.sub(in[0], b.reduce("reduce_max", in[0], {axis}))});
        return b.finish({b.div(e, b.reduce("reduce_sum", e, {axis}))});
    },
    .canonical = axis_from_front,
    .gradient = back_through_softmax,
};

const OpDef kLogSoftmax{
    .name = "log_softmax",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis", -1)},
    .types = {{"T", kWideFloats}},
    .onnx = {"LogSoftmax", {flattened_before_13("log_softmax")}},
    .infer = infer_along_axis,
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        int64_t axis = op.integer("axis");
        Value* shifted = b.sub(in[0], b.reduce("reduce_max", in[0], {axis}));
        Value* total = b.reduce("reduce_sum", b.op("exp", {shifted}), {axis});
        return b.finish({b.sub(shifted, b.op("log", {total}))});
    },
    .canonical = axis_from_front,
    .gradient = back_through_log_softmax,
};

// One where the first of the largest elements along the axis stands: nothing before it is as large, nothing after
// larger.
const OpDef kHardmax{
    .name = "hardmax",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis", -1)},
    .types = {{"T", kWideFloats}},
    .onnx = {"Hardmax", {flattened_before_13("hardmax")}},
    .infer = infer_along_axis,
    .body =
        [](const OpView& op, const Indices& o) {
            TensorRef x = op.in(0);
            int64_t axis = op.integer("axis");
            auto k = op.reduce(x.dim(axis));
            Expr here = x.at(o), there = x.at(o.with(axis, k.var));
            Expr beaten = select(lt(k.var, o[axis]), ge(there, here), gt(there, here));
            Expr times = sum({k}, cast(beaten, DType::i64));
            return select(eq(times, 0), like(op, 1), like(op, 0));
        },
    .canonical = axis_from_front,
};

}  // namespace

std::vector<OpDef> softmax_ops() { return {kSoftmax, kLogSoftmax, kHardmax}; }

}  // namespace tessera
