// Element-wise functions: exponentials, roots, trigonometry, rounding, and tests for NaN and infinity.
#include "graph/builder.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

OpDef function(std::string name, const char* onnx, Fn fn, DTypes types = kWideFloats) {
    return unary(std::move(name), onnx, types,
                 [fn](const Expr& x) { return in_reals(x, [fn](const Expr& v) { return call(fn, {v}); }); });
}

const OpDef kIsNan{
    .name = "is_nan",
    .inputs = {"x: T"},
    .outputs = {"y: bool"},
    .types = {{"T", kFloats}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = "IsNaN",
    .body = [](const OpView& op, const Indices& o) { return call(Fn::IsNan, {op.in(0).at(o)}); },
};

const OpDef kIsInf{
    .name = "is_inf",
    .inputs = {"x: T"},
    .outputs = {"y: bool"},
    .attrs = {int_attr("detect_negative", 1), int_attr("detect_positive", 1)},
    .types = {{"T", kFloats}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = "IsInf",
    .body =
        [](const OpView& op, const Indices& o) {
            Expr x = op.in(0).at(o), zero = like(op, 0);
            bool negative = op.integer("detect_negative"), positive = op.integer("detect_positive");
            if (!negative && !positive) return int_const(0, DType::boolean);
            Expr infinite = call(Fn::IsInf, {x});
            if (negative && positive) return infinite;
            return logical_and(infinite, negative ? lt(x, zero) : gt(x, zero));
        },
};

// 1 / sqrt(x), rounded once; ONNX has it only as two ops.
const OpDef kRsqrt{
    .name = "rsqrt",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .body = [](const OpView& op, const Indices& o) { return like(op, 1) / call(Fn::Sqrt, {op.in(0).at(o)}); },
    .expand = [](const OpView&, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        return b.finish({b.op("reciprocal", {b.op("sqrt", {in[0]})})});
    },
};

}  // namespace

std::vector<OpDef> math_ops() {
    return {
        differentiable(function("exp", "Exp", Fn::Exp),
                       [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.out)}; }),
        differentiable(function("log", "Log", Fn::Log),
                       [](const Backward& r) -> Gradients { return {r.b.div(r.g, r.in[0])}; }),
        differentiable(function("sqrt", "Sqrt", Fn::Sqrt),
                       [](const Backward& r) -> Gradients { return {r.b.div(r.g, r.b.mul(r.number(2), r.out))}; }),
        differentiable(function("sin", "Sin", Fn::Sin),
                       [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.b.op("cos", {r.in[0]}))}; }),
        differentiable(function("cos", "Cos", Fn::Cos),
                       [](const Backward& r) -> Gradients { return {r.b.op("neg", {r.b.mul(r.g, r.b.op("sin", {r.in[0]}))})}; }),
        function("tan", "Tan", Fn::Tan),
        function("asin", "Asin", Fn::Asin),
        function("acos", "Acos", Fn::Acos),
        function("atan", "Atan", Fn::Atan),
        function("sinh", "Sinh", Fn::Sinh),
        function("cosh", "Cosh", Fn::Cosh),
        differentiable(function("tanh", "Tanh", Fn::Tanh),
                       [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.b.sub(r.number(1), r.b.mul(r.out, r.out)))}; }),
        function("asinh", "Asinh", Fn::Asinh),
        function("acosh", "Acosh", Fn::Acosh),
        function("atanh", "Atanh", Fn::Atanh),
        function("erf", "Erf", Fn::Erf, kNumbers),
        function("floor", "Floor", Fn::Floor),
        function("ceil", "Ceil", Fn::Ceil),
        function("round", "Round", Fn::Round),
        kIsNan,
        kIsInf,
        kRsqrt,
    };
}

}  // namespace tessera
