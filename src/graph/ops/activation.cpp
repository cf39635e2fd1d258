// Activations, element by element.
#include <cmath>
#include <numbers>

#include "graph/ops/elementwise.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

Expr real_of(const OpView& op, std::string_view attr, const Expr& x) { return constant(op.real(attr), x.dtype()); }
Expr zero(const Expr& x) { return constant(0, x.dtype()); }
Expr one(const Expr& x) { return constant(1, x.dtype()); }

Expr sigmoid(const Expr& x) { return one(x) / (one(x) + call(Fn::Exp, {-x})); }

// log(1 + exp(x)), without overflow.
Expr softplus(const Expr& x) { return max(x, zero(x)) + call(Fn::Log1p, {call(Fn::Exp, {-call(Fn::Abs, {x})})}); }

Expr hard_sigmoid(const Expr& x, const Expr& alpha, const Expr& beta) {
    return clamp(alpha * x + beta, zero(x), one(x));
}

// A tensor of one element, whatever its rank.
bool maybe_scalar(const Shape& s) {
    for (const Dim& d : s)
        if (d.as_int() && !d.is_int(1)) return false;
    return true;
}

// Before opset 7 a vector of slopes had one for each channel.
Status slopes_by_channel(OnnxCall& call) {
    if (!call.has(0) || !call.has(1)) return {};
    const Type &x = call.inputs[0]->type(), &slope = call.inputs[1]->type();
    if (!x.is_tensor() || !slope.is_tensor() || !x.tensor().shape.ranked() || !slope.tensor().shape.ranked()) return {};
    if (slope.tensor().rank() != 1 || slope.tensor().dim(0).is_int(1) || x.tensor().rank() <= 2) return {};
    std::vector<int64_t> axes;
    for (int64_t a = 1; a < x.tensor().rank() - 1; ++a) axes.push_back(a);
    call.inputs[1] = call.build.unsqueeze(call.inputs[1], axes);
    return call.build.status();
}

Status only_slopes_by_channel(OnnxCall& call) {
    const Type &x = call.inputs.at(0)->type(), &slope = call.inputs.at(1)->type();
    if (!x.is_tensor() || !slope.is_tensor() || !x.tensor().shape.ranked() || !slope.tensor().shape.ranked()) return {};
    const Shape &xs = x.tensor().shape, &s = slope.tensor().shape;
    if (maybe_scalar(s) || xs.rank() <= 2) return {};
    if (s.rank() == xs.rank() - 1 && maybe_scalar(s.slice(1, s.rank()))) return {};
    return Error(Code::E0214, "PRelu: slopes {} for {} are not one for each channel, which opsets before 7 require", s,
                 xs);
}

const OpDef kPRelu{
    .name = "prelu",
    .inputs = {"x: T", "slope: T"},
    .outputs = {"y: T"},
    .types = {{"T", kNumbers}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = {"PRelu", {without_consumed_inputs(), {7, slopes_by_channel, only_slopes_by_channel}}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (!broadcasts_to(op.shape(1), op.shape(0)))
            return op.shape_error("slopes {} do not broadcast to {}", op.shape(1), op.shape(0));
        return op.same(0);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            Expr x = op.in(0).at(o);
            return select(lt(x, zero(x)), op.broadcast_in(1, o) * x, x);
        },
    .layout = Layout::AsInputs,
};

// The defaults had fewer digits in opset 1.
OnnxChange selu_defaults() {
    return {
        6,
        [](OnnxCall& call) -> Status {
            call.attrs.try_emplace("alpha", 1.6732f);
            call.attrs.try_emplace("gamma", 1.0507f);
            return {};
        },
        [](OnnxCall& call) -> Status {
            call.attrs.try_emplace("alpha", 1.67326319217681884765625f);
            call.attrs.try_emplace("gamma", 1.05070102214813232421875f);
            return {};
        },
    };
}

OpDef selu() {
    OpDef def =
        unary_with("selu", "Selu", kWideFloats,
                   {float_attr("alpha", 1.67326319217681884765625f), float_attr("gamma", 1.05070102214813232421875f)},
                   [](const OpView& op, const Expr& x) {
                       Expr negative = real_of(op, "alpha", x) * call(Fn::Expm1, {x});
                       return real_of(op, "gamma", x) * select(lt(x, zero(x)), negative, x);
                   });
    def.onnx.changes.push_back(selu_defaults());
    return def;
}

OpDef gelu() {
    OpDef def = unary_with("gelu", "Gelu", kWideFloats, {string_attr("approximate", "none").one_of({"none", "tanh"})},
                           [](const OpView& op, const Expr& x) {
                               auto number = [&](double v) { return constant(v, x.dtype()); };
                               Expr inner = op.string("approximate") == "tanh"
                                                ? call(Fn::Tanh, {number(std::sqrt(2 / std::numbers::pi)) *
                                                                  (x + number(0.044715) * x * x * x)})
                                                : call(Fn::Erf, {x * number(std::sqrt(0.5))});
                               return number(0.5) * x * (one(x) + inner);
                           });
    return def;
}

const OpDef kSwiGLU{
    .name = "swiglu",
    .inputs = {"gate: T", "x: T"},
    .outputs = {"y: T"},
    .attrs = {float_attr("alpha", 1.0f)},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = "SwiGLU",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &a = op.shape(0), &b = op.shape(1);
        bool fits = a.rank() == b.rank();
        for (int64_t d = 0; fits && d < a.rank(); ++d) fits = !a[d].as_int() || !b[d].as_int() || a[d] == b[d];
        if (!fits) return op.shape_error("both inputs must have the same shape, but have {} and {}", a, b);
        return op.same(0);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            Expr gate = op.in(0).at(o);
            return gate * sigmoid(real_of(op, "alpha", gate) * gate) * op.in(1).at(o);
        },
};

// Before opset 11 the limits were attributes.
Status limits_to_inputs(OnnxCall& call) {
    const std::pair<const char*, size_t> limits[] = {{"min", 1}, {"max", 2}};
    for (auto [name, input] : limits) {
        auto it = call.attrs.find(name);
        if (it == call.attrs.end()) continue;
        const float* v = std::get_if<float>(&it->second);
        if (!v || !call.has(0) || !call.inputs[0]->type().is_tensor())
            return Error(Code::E0206, "Clip: attribute \"{}\" must be of kind float", name);
        call.set_input(input, call.build.scalar_like(*v, call.inputs[0]));
        call.attrs.erase(it);
    }
    return call.build.status();
}

Status limits_to_attrs(OnnxCall& call) {
    const std::pair<const char*, size_t> limits[] = {{"min", 1}, {"max", 2}};
    for (auto [name, input] : limits) {
        if (!call.has(input)) continue;
        const Value* v = call.inputs[input];
        if (!v->is_constant() || v->tensor()->elements() != 1 || !is_float(v->tensor()->dtype()))
            return Error(Code::E0214, "Clip: {} is not a float constant, but was an attribute before opset 11", name);
        call.attrs[name] = float(v->tensor()->real_at(0));
    }
    call.inputs.resize(1);
    return {};
}

// Both limits count as inside, as in torch.clamp; what a limit takes is summed to its one element.
Gradients back_through_clip(const Backward& r) {
    Builder& b = r.b;
    Value* zero = r.number(0);
    Value *left = r.g, *low = nullptr, *high = nullptr;
    auto limit = [&](size_t i) { return b.op("reshape", {r.in[i], b.ints({})}); };
    auto taken = [&](Value* where, size_t i) {
        Value* all = b.op("reduce_sum", {b.op("where", {where, r.g, zero})}, {{"keepdims", Attr(int64_t{0})}});
        return b.op("reshape", {all, r.shape_of(i)}, {{"allowzero", Attr(int64_t{1})}});
    };
    Value* lifted = r.in[0];
    if (r.in.size() > 1 && r.in[1]) {
        Value* below = b.op("less", {r.in[0], limit(1)});
        left = b.op("where", {below, zero, left});
        lifted = b.op("max", {r.in[0], limit(1)});
        low = below;
    }
    if (r.in.size() > 2 && r.in[2]) {
        Value* above = b.op("greater", {lifted, limit(2)});
        left = b.op("where", {above, zero, left});
        if (low) low = b.op("and", {low, b.op("not", {above})});
        high = above;
    }
    return {left, low && r.wants(1) ? taken(low, 1) : nullptr, high && r.wants(2) ? taken(high, 2) : nullptr};
}

const OpDef kClip{
    .name = "clip",
    .inputs = {"x: T", "min?: T", "max?: T"},
    .outputs = {"y: T"},
    .types = {{"T", kNumbers}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = {"Clip", {without_consumed_inputs(), {11, limits_to_inputs, limits_to_attrs}}},
    .infer = [](const OpView& op) -> Result<Types> {
        for (size_t i : {1, 2})
            if (op.has(i) && !maybe_scalar(op.shape(i)))
                return op.shape_error("{} must be a scalar, is {}", op.def().inputs[i].name, op.shape(i));
        return op.same(0);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            Expr y = op.in(0).at(o);
            if (op.has(1)) y = max(y, only_element(op.in(1)));
            if (op.has(2)) y = min(y, only_element(op.in(2)));
            return y;
        },
    .gradient = back_through_clip,
    .layout = Layout::AsInputs,
};

// 1, or exp(x / alpha) below zero. (A negative alpha has both terms of the sum at once; its body says that.)
Gradients back_through_celu(const Backward& r) {
    const double alpha = r.node.view().real("alpha");
    if (!(alpha > 0)) return {};
    Value* slope = r.b.op("exp", {r.b.div(r.b.op("min", {r.in[0], r.number(0)}), r.number(alpha))});
    return {r.b.mul(r.g, slope)};
}

}  // namespace

std::vector<OpDef> activation_ops() {
    return {
        differentiable(unary("relu", "Relu", kNumbers, [](const Expr& x) { return max(x, zero(x)); }),
                       [](const Backward& r) -> Gradients {
                           return {r.b.op("where", {r.b.op("greater", {r.out, r.number(0)}), r.g, r.number(0)})};
                       }),
        unary_with(
            "leaky_relu", "LeakyRelu", kWideFloats, {float_attr("alpha", 0.01f)},
            [](const OpView& op, const Expr& x) { return select(lt(x, zero(x)), real_of(op, "alpha", x) * x, x); }),
        kPRelu,
        unary_with("elu", "Elu", kWideFloats, {float_attr("alpha", 1.0f)},
                   [](const OpView& op, const Expr& x) {
                       return select(lt(x, zero(x)), real_of(op, "alpha", x) * call(Fn::Expm1, {x}), x);
                   }),
        selu(),
        differentiable(unary_with("celu", "Celu", kWideFloats, {float_attr("alpha", 1.0f)},
                                  [](const OpView& op, const Expr& x) {
                                      Expr alpha = real_of(op, "alpha", x);
                                      return max(x, zero(x)) + min(alpha * call(Fn::Expm1, {x / alpha}), zero(x));
                                  }),
                       back_through_celu),
        gelu(),
        unary_with("hard_sigmoid", "HardSigmoid", kWideFloats, {float_attr("alpha", 0.2f), float_attr("beta", 0.5f)},
                   [](const OpView& op, const Expr& x) {
                       return hard_sigmoid(x, real_of(op, "alpha", x), real_of(op, "beta", x));
                   }),
        unary(
            "hard_swish", "HardSwish", kWideFloats,
            [](const Expr& x) { return x * hard_sigmoid(x, constant(1.0 / 6, x.dtype()), constant(0.5, x.dtype())); }),
        differentiable(
            unary("mish", "Mish", kWideFloats, [](const Expr& x) { return x * call(Fn::Tanh, {softplus(x)}); }),
            [](const Backward& r) -> Gradients {
                Value* t = r.b.op("tanh", {r.b.op("softplus", {r.in[0]})});
                Value* steep = r.b.mul(r.b.sub(r.number(1), r.b.mul(t, t)), r.b.op("sigmoid", {r.in[0]}));
                return {r.b.mul(r.g, r.b.add(t, r.b.mul(r.in[0], steep)))};
            }),
        differentiable(
            unary("sigmoid", "Sigmoid", kWideFloats, sigmoid),
            [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.b.mul(r.out, r.b.sub(r.number(1), r.out)))}; }),
        differentiable(unary("softplus", "Softplus", kWideFloats, softplus),
                       [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.b.op("sigmoid", {r.in[0]}))}; }),
        unary("softsign", "Softsign", kWideFloats, [](const Expr& x) { return x / (one(x) + call(Fn::Abs, {x})); }),
        unary_with("swish", "Swish", kWideFloats, {float_attr("alpha", 1.0f)},
                   [](const OpView& op, const Expr& x) { return x * sigmoid(real_of(op, "alpha", x) * x); }),
        kSwiGLU,
        unary_with("thresholded_relu", "ThresholdedRelu", kWideFloats, {float_attr("alpha", 1.0f)},
                   [](const OpView& op, const Expr& x) { return select(gt(x, real_of(op, "alpha", x)), x, zero(x)); }),
        unary_with("shrink", "Shrink", kNumbers, {float_attr("bias", 0.0f), float_attr("lambd", 0.5f)},
                   [](const OpView& op, const Expr& x) {
                       return in_reals(x, [&](const Expr& v) {
                           Expr bias = real_of(op, "bias", v), limit = real_of(op, "lambd", v);
                           return select(lt(v, -limit), v + bias, select(gt(v, limit), v - bias, zero(v)));
                       });
                   }),
        kClip,
    };
}

}  // namespace tessera
