// Normalizations over batches, instances, layers, groups, channels and norms.
#include <numeric>

#include "graph/gradient/gradient.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/for_kernels.h"

namespace tessera {
namespace {

// [from, to) as a list.
std::vector<int64_t> range(int64_t from, int64_t to) {
    std::vector<int64_t> list(std::max<int64_t>(to - from, 0));
    std::iota(list.begin(), list.end(), from);
    return list;
}

DType wide(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

// A [C] vector lined up with dimension 1 of `rank` dimensions.
Value* by_channel(Builder& b, Value* v, int64_t rank) { return rank > 2 ? b.unsqueeze(v, range(1, rank - 1)) : v; }

// x minus its mean, and the mean of that squared, over axes that are kept with size 1.
struct Moments {
    Value *mean, *centered, *variance;
    Moments(Builder& b, Value* x, const std::vector<int64_t>& axes) {
        mean = b.reduce("reduce_mean", x, axes);
        centered = b.sub(x, mean);
        variance = b.reduce("reduce_mean", b.mul(centered, centered), axes);
    }
    Value* deviation(Builder& b, double epsilon) const {
        return b.op("sqrt", {b.add(variance, b.scalar_like(epsilon, variance))});
    }
};

Status check_channels(const OpView& op, size_t from, size_t to) {
    const Shape& x = op.shape(0);
    Dim channels = x.rank() > 1 ? x[1] : Dim(1);
    for (size_t i = from; i < to; ++i) {
        const Shape& s = op.shape(i);
        if (s.rank() != 1 || (s[0].as_int() && channels.as_int() && s[0] != channels))
            return op.shape_error("{} must be [{}], one for each channel of {}, is {}", op.def().inputs[i].name,
                                  to_string(channels), x, s);
    }
    return {};
}

// --- batch normalization

std::optional<int64_t> take_int(AttrMap& attrs, const char* name) {
    auto it = attrs.find(name);
    if (it == attrs.end() || !std::holds_alternative<int64_t>(it->second)) return std::nullopt;
    int64_t v = std::get<int64_t>(it->second);
    attrs.erase(it);
    return v;
}

// Before opset 7 an attribute said whether it is trained; from then to opset 14, the number of outputs did.
Status test_mode_before_7(OnnxCall& call) {
    if (!take_int(call.attrs, "is_test").value_or(0)) call.attrs["training_mode"] = int64_t{1};
    return {};
}

// Opset 1 wants to hear which inputs may be overwritten: the running statistics.
Status consumed_inputs_for_1(OnnxCall& call) {
    call.attrs["consumed_inputs"] = std::vector<int64_t>{0, 0, 0, 1, 1};
    return {};
}

Status test_mode_for_6(OnnxCall& call) {
    if (call.outputs == 1) call.attrs["is_test"] = int64_t{1};
    return {};
}

// Before opset 9, spatial = 0 meant a mean and variance for each position, not each channel.
Status positions_before_9(OnnxCall& call) {
    if (take_int(call.attrs, "spatial").value_or(1)) return {};
    if (call.outputs > 1 || call.attrs.contains("training_mode"))
        return Error(Code::E0202, "BatchNormalization: training with spatial = 0 is not supported");
    for (size_t i = 0; i < 5; ++i)
        if (!call.has(i) || !call.inputs[i]->type().is_tensor())
            return Error(Code::E0207, "BatchNormalization: input {} is missing or not a tensor", i);
    float epsilon = 1e-5f;
    if (auto it = call.attrs.find("epsilon"); it != call.attrs.end() && std::holds_alternative<float>(it->second))
        epsilon = std::get<float>(it->second);
    Builder& b = call.build;
    auto& in = call.inputs;
    Value* deviation = b.op("sqrt", {b.add(in[4], b.scalar_like(epsilon, in[4]))});
    call.result = {b.add(b.mul(b.div(b.sub(in[0], in[3]), deviation), in[1]), in[2])};
    return b.status();
}

Status running_statistics_before_14(OnnxCall& call) {
    if (call.outputs == 1) return {};
    call.attrs["training_mode"] = int64_t{1};
    if (call.outputs <= 3) return {};
    // Two more outputs: the batch's own mean and variance.
    if (!call.has(0) || !call.inputs[0]->type().is_tensor() || !call.inputs[0]->type().tensor().shape.ranked())
        return Error(Code::E0209, "BatchNormalization: the rank of the input is not known");
    Builder& b = call.build;
    Value* x = call.inputs[0];
    std::vector<int64_t> axes = range(0, x->type().tensor().rank());
    if (axes.size() > 1) axes.erase(axes.begin() + 1);
    call.result = b.ops("batch_normalization", call.inputs, call.attrs, 3);
    Value* centered = b.sub(x, b.reduce("reduce_mean", x, axes));
    call.result.push_back(b.reduce("reduce_mean", x, axes, false));
    call.result.push_back(b.reduce("reduce_mean", b.mul(centered, centered), axes, false));
    return b.status();
}

Status running_statistics_for_13(OnnxCall& call) {
    bool training = take_int(call.attrs, "training_mode").value_or(0);
    if (training == (call.outputs > 1)) {
        if (training) call.outputs = 5;
        return {};
    }
    return Error(Code::E0214, "BatchNormalization: training_mode = {} with {} outputs needs opset 14", int(training),
                 call.outputs);
}

std::vector<int64_t> all_but_channels(int64_t rank) {
    std::vector<int64_t> axes = range(0, rank);
    if (rank > 1) axes.erase(axes.begin() + 1);
    return axes;
}

// By the statistics of a batch: dx is d*(g - mean(g) - c*mean(g*c)/variance), where c is x without its mean and d the
// scale by the deviation. Two sums over the batch and one pass; op by op, it would be four sums. Inference has a body.
Gradients back_through_batch_normalization(const Backward& r) {
    const OpView op = r.node.view();
    Builder& b = r.b;
    const DType t = wide(op.dtype(0));
    const int64_t rank = r.rank(0);
    const std::vector<int64_t> axes = all_but_channels(rank);
    Moments batch(b, b.cast(r.in[0], t), axes);
    Value *g = b.cast(r.g, t), *deviation = batch.deviation(b, op.real("epsilon"));
    Value *total = b.reduce("reduce_sum", g, axes),
          *along = b.div(b.reduce("reduce_sum", b.mul(g, batch.centered), axes), deviation);
    Gradients back(5);
    back[1] = b.cast(b.reshape(along, {-1}), op.dtype(1));
    back[2] = b.cast(b.reshape(total, {-1}), op.dtype(2));
    Value* count = b.cast(b.div(b.op("size", {r.in[0]}), b.op("size", {deviation})), t);
    Value* slope = b.div(by_channel(b, b.cast(r.in[1], t), rank), deviation);
    Value* shift = b.div(b.mul(slope, total), count);
    Value* tilt = b.div(b.mul(slope, along), b.mul(count, deviation));
    for (size_t i : {1, 2}) {  // of the running statistics, which the batch's moments are mixed into
        if (!r.gs[i]) continue;
        Value* own = b.cast(r.gs[i], t);
        back[i + 2] = b.cast(b.mul(own, b.scalar(op.real("momentum"), t)), op.dtype(i + 2));
        Value* part = b.div(b.mul(by_channel(b, own, rank), b.scalar(double(i) * (1 - op.real("momentum")), t)), count);
        (i == 1 ? shift : tilt) = b.sub(i == 1 ? shift : tilt, part);
    }
    back[0] = b.cast(b.sub(b.sub(b.mul(g, slope), b.mul(batch.centered, tilt)), shift), op.dtype(0));
    return back;
}

// Inference has a body; training, with its statistics over the batch, is expanded.
const OpDef kBatchNormalization{
    .name = "batch_normalization",
    .inputs = {"x: T", "scale: U", "bias: U", "mean: V", "variance: V"},
    .outputs = {"y: T", "running_mean?: V", "running_variance?: V"},
    .attrs = {float_attr("epsilon", 1e-5f), float_attr("momentum", 0.9f), int_attr("training_mode", 0)},
    .types = {{"T", kWideFloats}, {"U", kWideFloats}, {"V", kWideFloats}},
    .traits = {Trait::Pure, Trait::Light},
    .onnx = {"BatchNormalization",
             {{6, attr_dropped(6, "consumed_inputs").up, consumed_inputs_for_1},
              {7, test_mode_before_7, test_mode_for_6},
              {9, positions_before_9, [](OnnxCall&) -> Status { return {}; }},
              {14, running_statistics_before_14, running_statistics_for_13}}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(0) == 0) return op.shape_error("needs a batch dimension, has {}", op.shape(0));
        TRY(check_channels(op, 1, 5));
        return Types{op.type(0), op.type(3), op.type(4)};
    },
    .body =
        [](const OpView& op, const Indices& o) {
            if (op.output() > 0) return op.in(op.output() == 1 ? 3 : 4).at(o);
            DType t = wide(op.dtype(0));
            Expr c = o.rank() > 1 ? o[1] : Expr(0);
            auto channel = [&](size_t i) { return cast(op.in(i).at({c}), t); };
            Expr deviation = call(Fn::Sqrt, {channel(4) + constant(op.real("epsilon"), t)});
            return cast((cast(op.in(0).at(o), t) - channel(3)) * (channel(1) / deviation) + channel(2), op.dtype(0));
        },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        DType t = wide(op.dtype(0));
        int64_t rank = op.rank(0);
        auto channel = [&](size_t i) { return by_channel(b, b.cast(in[i], t), rank); };
        Moments batch(b, b.cast(in[0], t), all_but_channels(rank));
        Value* y = b.add(b.mul(b.div(batch.centered, batch.deviation(b, op.real("epsilon"))), channel(1)), channel(2));
        auto running = [&](Value* now, size_t before) {
            Value* m = b.scalar(op.real("momentum"), t);
            Value* rest = b.scalar(1 - op.real("momentum"), t);
            Value* flat = b.reshape(now, {-1});
            return b.cast(b.add(b.mul(b.cast(in[before], t), m), b.mul(flat, rest)), op.dtype(before));
        };
        return b.finish({b.cast(y, op.dtype(0)), running(batch.mean, 3), running(batch.variance, 4)});
    },
    .body_applies = [](const OpView& op) { return op.integer("training_mode") == 0; },
    .gradient = back_through_batch_normalization,
    .gradient_applies = [](const OpView& op) { return op.integer("training_mode") != 0; },
    .layout = Layout::AsInputs,
};

// --- over other parts of the input

const OpDef kInstanceNormalization{
    .name = "instance_normalization",
    .inputs = {"x: T", "scale: T", "bias: T"},
    .outputs = {"y: T"},
    .attrs = {float_attr("epsilon", 1e-5f)},
    .types = {{"T", kWideFloats}},
    .onnx = {"InstanceNormalization", {attr_dropped(6, "consumed_inputs")}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(0) < 3) return op.shape_error("needs [N,C,D1,...], has {}", op.shape(0));
        TRY(check_channels(op, 1, 3));
        return op.same(0);
    },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        DType t = wide(op.dtype(0));
        int64_t rank = op.rank(0);
        Moments m(b, b.cast(in[0], t), range(2, rank));
        Value* y = b.div(m.centered, m.deviation(b, op.real("epsilon")));
        auto channel = [&](size_t i) { return by_channel(b, b.cast(in[i], t), rank); };
        return b.finish({b.cast(b.add(b.mul(y, channel(1)), channel(2)), op.dtype(0))});
    },
};

// The element type in which statistics are computed.
Result<DType> stash_type(const OpView& op) {
    DType t = TRY(dtype_attr(op, "stash_type"));
    if (!kWideFloats.has(t)) return op.error(Code::E0212, "stash_type is {}, not a float type", dtype_name(t));
    return t;
}

const OpDef kLayerNormalization{
    .name = "layer_normalization",
    .inputs = {"x: T", "scale: T", "bias?: T"},
    .outputs = {"y: T", "mean?: *", "inv_std_dev?: *"},
    .attrs = {int_attr("axis", -1), float_attr("epsilon", 1e-5f), int_attr("stash_type", 1)},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = "LayerNormalization",
    .infer = [](const OpView& op) -> Result<Types> {
        DType stash = TRY(stash_type(op));
        const Shape& x = op.shape(0);
        if (!x.ranked()) return Types{op.type(0), Type(stash, x), Type(stash, x)};
        int64_t axis = TRY(op.axis(op.integer("axis"), x.rank()));
        for (size_t i : {1, 2})
            if (op.has(i) && !broadcasts_to(op.shape(i), x))
                return op.shape_error("{} {} does not broadcast to {}", op.def().inputs[i].name, op.shape(i), x);
        Shape reduced = x.slice(0, axis) + Shape(std::vector<Dim>(x.rank() - axis, Dim(1)));
        return Types{op.type(0), Type(stash, reduced), Type(stash, reduced)};
    },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        DType stash = TRY(stash_type(op));
        Moments m(b, b.cast(in[0], stash), range(TRY(op.axis(op.integer("axis"), op.rank(0))), op.rank(0)));
        Value* inverse = b.op("reciprocal", {m.deviation(b, op.real("epsilon"))});
        Value* y = b.mul(b.cast(b.mul(m.centered, inverse), op.dtype(0)), in[1]);
        if (op.has(2)) y = b.add(y, in[2]);
        return b.finish({y, m.mean, inverse});
    },
    .canonical = axis_from_front,
};

const OpDef kRmsNormalization{
    .name = "rms_normalization",
    .inputs = {"x: T", "scale: V"},
    .outputs = {"y: V"},
    .attrs = {int_attr("axis", -1), float_attr("epsilon", 1e-5f), int_attr("stash_type", 1)},
    .types = {{"T", kWideFloats}, {"V", kWideFloats}},
    .onnx = "RMSNormalization",
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(stash_type(op));
        TRY(op.axis(op.integer("axis"), op.rank(0)));
        if (!broadcasts_to(op.shape(1), op.shape(0)))
            return op.shape_error("scale {} does not broadcast to {}", op.shape(1), op.shape(0));
        return op.like(1, op.shape(0));
    },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        DType stash = TRY(stash_type(op));
        Value* x = b.cast(in[0], stash);
        auto axes = range(TRY(op.axis(op.integer("axis"), op.rank(0))), op.rank(0));
        Value* square = b.reduce("reduce_mean", b.mul(x, x), axes);
        Value* root = b.op("sqrt", {b.add(square, b.scalar(op.real("epsilon"), stash))});
        return b.finish({b.mul(b.cast(b.div(x, root), op.dtype(1)), in[1])});
    },
    .canonical = axis_from_front,
};

// Statistics over each of `groups` groups of channels, in the input's shape.
Value* normalized_groups(Builder& b, Value* x, int64_t groups, double epsilon) {
    Moments m(b, b.reshape(x, {0, groups, -1}), {2});
    return b.div(m.centered, m.deviation(b, epsilon));
}

// Before opset 21 there was one scale and bias a group.
Status scale_by_group(OnnxCall& call) {
    auto groups = take_int(call.attrs, "num_groups");
    if (!groups || *groups < 1) return Error(Code::E0212, "GroupNormalization: num_groups must be positive");
    float epsilon = 1e-5f;
    if (auto it = call.attrs.find("epsilon"); it != call.attrs.end() && std::holds_alternative<float>(it->second))
        epsilon = std::get<float>(it->second);
    for (size_t i = 0; i < 3; ++i)
        if (!call.has(i) || !call.inputs[i]->type().is_tensor())
            return Error(Code::E0207, "GroupNormalization: input {} is missing or not a tensor", i);
    Builder& b = call.build;
    auto& in = call.inputs;
    DType t = in[0]->type().tensor().dtype;
    Value* y = b.cast(normalized_groups(b, b.cast(in[0], wide(t)), *groups, epsilon), t);
    y = b.add(b.mul(y, b.unsqueeze(in[1], {1})), b.unsqueeze(in[2], {1}));
    call.result = {b.op("reshape", {y, b.op("shape", {in[0]})})};
    return b.status();
}

const OpDef kGroupNormalization{
    .name = "group_normalization",
    .inputs = {"x: T", "scale: T", "bias: T"},
    .outputs = {"y: T"},
    .attrs = {float_attr("epsilon", 1e-5f), int_attr("num_groups").required(), int_attr("stash_type", 1)},
    .types = {{"T", kWideFloats}},
    .onnx = {"GroupNormalization",
             {{21, scale_by_group,
               [](OnnxCall&) -> Status {
                   return Error(Code::E0214, "GroupNormalization: a scale for each channel needs opset 21");
               }}}},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(stash_type(op));
        int64_t groups = op.integer("num_groups");
        const Shape& x = op.shape(0);
        if (x.rank() < 2) return op.shape_error("needs [N,C,...], has {}", x);
        if (groups < 1) return op.error(Code::E0212, "num_groups is {}", groups);
        if (x[1].as_int() && *x[1].as_int() % groups != 0)
            return op.shape_error("{} channels of {} do not divide into {} groups", *x[1].as_int(), x, groups);
        TRY(check_channels(op, 1, 3));
        return op.same(0);
    },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        DType stash = TRY(stash_type(op));
        Value* y = normalized_groups(b, b.cast(in[0], stash), op.integer("num_groups"), op.real("epsilon"));
        y = b.cast(b.op("reshape", {y, b.op("shape", {in[0]})}), op.dtype(0));
        auto channel = [&](size_t i) { return by_channel(b, in[i], op.rank(0)); };
        return b.finish({b.add(b.mul(y, channel(1)), channel(2))});
    },
};

// --- by neighbours and by norms

const OpDef kLrn{
    .name = "lrn",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {float_attr("alpha", 1e-4f), float_attr("beta", 0.75f), float_attr("bias", 1.0f),
              int_attr("size").required()},
    .types = {{"T", kWideFloats}},
    .onnx = "LRN",
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(0) < 2) return op.shape_error("needs [N,C,...], has {}", op.shape(0));
        int64_t size = op.integer("size");
        if (size < 1 || size > int64_t{1} << 30) return op.error(Code::E0212, "size is {}", size);
        return op.same(0);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            TensorRef x = op.in(0);
            int64_t size = op.integer("size"), reach = x.dim(1).as_int().value_or(size);
            int64_t before = std::min((size - 1) / 2, reach), after = std::min(size / 2, reach);
            auto k = op.reduce(before + after + 1);
            Expr near = x.at_or(o.with(1, o[1] + k.var - before), like(op, 0));
            Expr scale = like(op, op.real("bias")) + like(op, op.real("alpha") / double(size)) * sum({k}, near * near);
            return x.at(o) / pow(scale, like(op, op.real("beta")));
        },
    .layout = Layout::ChannelsLast,
};

const OpDef kLpNormalization{
    .name = "lp_normalization",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis", -1), int_attr("p", 2)},
    .types = {{"T", kWideFloats}},
    .onnx = "LpNormalization",
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(op.axis(op.integer("axis"), op.rank(0)));
        if (int64_t p = op.integer("p"); p != 1 && p != 2) return op.error(Code::E0212, "p is {}, not 1 or 2", p);
        return op.same(0);
    },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        DType t = wide(op.dtype(0));
        Value* x = b.cast(in[0], t);
        Value* norm = b.reduce(op.integer("p") == 1 ? "reduce_l1" : "reduce_l2", x, {op.integer("axis")});
        Value* zero = b.scalar(0, t);
        return b.finish({b.cast(b.op("where", {b.op("equal", {norm, zero}), zero, b.div(x, norm)}), op.dtype(0))});
    },
    .canonical = axis_from_front,
};

const OpDef kMeanVarianceNormalization{
    .name = "mean_variance_normalization",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {ints_attr("axes", {0, 2, 3})},
    .types = {{"T", kWideFloats}},
    .onnx = "MeanVarianceNormalization",
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(op.axes(op.ints("axes"), op.rank(0)));
        return op.same(0);
    },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        DType t = wide(op.dtype(0));
        Moments m(b, b.cast(in[0], t), op.ints("axes"));
        Value* deviation = b.add(b.op("sqrt", {m.variance}), b.scalar(1e-9, t));
        return b.finish({b.cast(b.div(m.centered, deviation), op.dtype(0))});
    },
};

}  // namespace

Result<std::vector<Value*>> batch_norm_by_factors(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    const std::vector<Value*> none;
    if (op.integer("training_mode") || op.rank(0) < 2 || !op.value(1) || !op.value(4)) return none;
    const DType t = wide(op.dtype(0));
    auto channel = [&](Value* v) { return by_channel(b, b.cast(v, t), op.rank(0)); };
    Value* deviation = b.op("sqrt", {b.add(b.cast(in[4], t), b.scalar(op.real("epsilon"), t))});
    Value* factor = channel(b.div(b.cast(in[1], t), deviation));
    Value* y = b.add(b.mul(b.sub(b.cast(in[0], t), channel(in[3])), factor), channel(in[2]));
    return std::vector<Value*>{b.cast(y, op.dtype(0)), in[3], in[4]};
}

std::vector<OpDef> normalization_ops() {
    return {
        kBatchNormalization, kInstanceNormalization,     kLayerNormalization,
        kRmsNormalization,   kGroupNormalization,        kLrn,
        kLpNormalization,    kMeanVarianceNormalization,
    };
}

}  // namespace tessera
