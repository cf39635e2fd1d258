// Element-wise arithmetic: add, sub, mul, div, mod, pow, neg, abs, min, max, sum, mean, bit operations.
#include "graph/builder.h"
#include "graph/ops/elementwise.h"
#include "graph/ops/families.h"
#include "graph/ops/for_kernels.h"

namespace tessera {
namespace {

using BinaryExpr = Expr (*)(const Expr&, const Expr&);

// Min, Max, Sum, Mean take any number of operands.
OpDef variadic(std::string name, const char* onnx, BinaryExpr f, std::vector<Trait> traits = {},
               BinaryExpr finish = nullptr) {
    traits.insert(traits.end(), {Trait::Pure, Trait::Elementwise, Trait::Commutative});
    return {
        .name = std::move(name),
        .inputs = {"inputs...: T"},
        .outputs = {"y: T"},
        .types = {{"T", kNumbers}},
        .traits = std::move(traits),
        .onnx = {onnx, {without_consumed_inputs()}},
        .infer = [](const OpView& op) -> Result<Types> {
            if (op.input_count() == 0) return op.error(Code::E0207, "needs at least one input");
            Shape y;
            for (size_t i = 0; i < op.input_count(); ++i) {
                if (!op.has(i)) return op.error(Code::E0207, "input {} is missing", i);
                auto both = broadcast(y, op.shape(i));
                if (!both) return op.shape_error("{} and {} do not broadcast", y, op.shape(i));
                y = *both;
            }
            return op.like(0, y);
        },
        .body =
            [f, finish](const OpView& op, const Indices& o) {
                Expr y = op.broadcast_in(0, o);
                for (size_t i = 1; i < op.input_count(); ++i) y = f(y, op.broadcast_in(i, o));
                return finish ? finish(y, constant(double(op.input_count()), y.dtype())) : y;
            },
    };
}

const OpDef kMod{
    .name = "mod",
    .inputs = {"a: T", "b: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("fmod", 0)},
    .types = {{"T", kNumbers}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = "Mod",
    .body =
        [](const OpView& op, const Indices& o) {
            Expr a = op.broadcast_in(0, o), b = op.broadcast_in(1, o);
            return op.integer("fmod") ? rem(a, b) : mod(a, b);
        },
};

// The exponent may have another type; the result has the base's.
const OpDef kPow{
    .name = "pow",
    .inputs = {"base: T", "exponent: U"},
    .outputs = {"y: T"},
    .types = {{"T", kNumbers}, {"U", kNumbers}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = {"Pow", {numpy_broadcast_from_7()}},
    .body =
        [](const OpView& op, const Indices& o) {
            Expr a = op.broadcast_in(0, o), b = op.broadcast_in(1, o);
            if (a.dtype() == b.dtype()) return pow(a, b);
            if (is_int(a.dtype()) && is_int(b.dtype()))
                return cast(pow(cast(a, DType::i64), cast(b, DType::i64)), a.dtype());
            return cast(pow(cast(a, DType::f64), cast(b, DType::f64)), a.dtype());
        },
};

// A shift by a negative amount or by the width and more leaves what the sign extends to.
const OpDef kBitShift{
    .name = "bit_shift",
    .inputs = {"x: T", "amount: T"},
    .outputs = {"y: T"},
    .attrs = {string_attr("direction").one_of({"LEFT", "RIGHT"}).required()},
    .types = {{"T", kInts}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = "BitShift",
    .infer = [](const OpView& op) -> Result<Types> {
        auto shape = broadcast(op.shape(0), op.shape(1));
        if (!shape) return op.shape_error("{} and {} do not broadcast", op.shape(0), op.shape(1));
        return op.like(0, *shape);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            bool left = op.string("direction") == "LEFT";
            Expr x = op.broadcast_in(0, o), amount = op.broadcast_in(1, o);
            Expr shifted = bit(left ? ExprKind::Shl : ExprKind::Shr, x, amount);
            if (!is_signed_int(x.dtype())) return shifted;
            auto number = [&](int64_t v) { return int_const(v, x.dtype()); };
            Expr inside = logical_and(ge(amount, number(0)), lt(amount, number(dtype_bits(x.dtype()))));
            Expr fill = left ? number(0) : select(lt(x, number(0)), number(-1), number(0));
            return select(inside, shifted, fill);
        },
};

Gradients back_through_div(const Backward& r) {
    Value* a = r.b.div(r.g, r.in[1]);
    return {a, r.b.op("neg", {r.b.mul(a, r.out)})};
}

OpDef bitwise(std::string name, const char* onnx, ExprKind kind) {
    return binary(std::move(name), onnx, kInts, "T", {Trait::Commutative},
                  [kind](const Expr& a, const Expr& b) { return bit(kind, a, b); });
}

}  // namespace

std::vector<OpDef> arithmetic_ops() {
    auto plus = [](const Expr& a, const Expr& b) { return a + b; };
    auto minus = [](const Expr& a, const Expr& b) { return a - b; };
    auto times = [](const Expr& a, const Expr& b) { return a * b; };
    auto over = [](const Expr& a, const Expr& b) { return a / b; };
    auto smaller = [](const Expr& a, const Expr& b) { return min(a, b); };
    auto larger = [](const Expr& a, const Expr& b) { return max(a, b); };
    return {
        differentiable(binary("add", "Add", kNumbers, "T", {Trait::Commutative, Trait::Associative}, plus),
                       [](const Backward& r) -> Gradients {
                           return {r.g, r.g};
                       }),
        differentiable(binary("sub", "Sub", kNumbers, "T", {}, minus),
                       [](const Backward& r) -> Gradients {
                           return {r.g, r.b.op("neg", {r.g})};
                       }),
        differentiable(
            binary("mul", "Mul", kNumbers, "T", {Trait::Commutative, Trait::Associative, Trait::Bilinear}, times),
            [](const Backward& r) -> Gradients {
                return {r.b.mul(r.g, r.in[1]), r.b.mul(r.g, r.in[0])};
            }),
        differentiable(binary("div", "Div", kNumbers, "T", {Trait::Linear}, over), back_through_div),
        variadic("min", "Min", smaller, {Trait::Associative}),
        variadic("max", "Max", larger, {Trait::Associative}),
        differentiable(variadic("sum", "Sum", plus), [](const Backward& r) { return Gradients(r.in.size(), r.g); }),
        variadic("mean", "Mean", plus, {}, over),
        differentiable(unary("neg", "Neg", kNumbers, [](const Expr& x) { return -x; }),
                       [](const Backward& r) -> Gradients { return {r.b.op("neg", {r.g})}; }),
        differentiable(unary("abs", "Abs", kNumbers, [](const Expr& x) { return call(Fn::Abs, {x}); }),
                       [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.b.op("sign", {r.in[0]}))}; }),
        unary("sign", "Sign", kNumbers, [](const Expr& x) { return call(Fn::Sign, {x}); }),
        differentiable(
            unary("reciprocal", "Reciprocal", kFloats, [](const Expr& x) { return constant(1, x.dtype()) / x; }),
            [](const Backward& r) -> Gradients { return {r.b.op("neg", {r.b.mul(r.g, r.b.mul(r.out, r.out))})}; }),
        unary("bitwise_not", "BitwiseNot", kInts, [](const Expr& x) { return bit_not(x); }),
        bitwise("bitwise_and", "BitwiseAnd", ExprKind::BitAnd),
        bitwise("bitwise_or", "BitwiseOr", ExprKind::BitOr),
        bitwise("bitwise_xor", "BitwiseXor", ExprKind::BitXor),
        kMod,
        kPow,
        kBitShift,
    };
}

Result<std::vector<Value*>> fold_in_parts(const OpView& op, const std::vector<Value*>& inputs, Builder& b) {
    constexpr size_t kMostOperands = 64;
    const DType dtype = op.tensor(0).dtype;
    const bool rounds = is_float(dtype) && dtype != DType::f32 && dtype != DType::f64;  // after each part
    if (inputs.size() <= kMostOperands || rounds) return std::vector<Value*>{};
    const bool mean = op.def().name == "mean";
    Value* folded = inputs[0];
    for (size_t from = 1; from < inputs.size(); from += kMostOperands - 1) {
        const size_t to = std::min(inputs.size(), from + kMostOperands - 1);
        std::vector<Value*> part{folded};
        part.insert(part.end(), inputs.begin() + std::ptrdiff_t(from), inputs.begin() + std::ptrdiff_t(to));
        folded = b.op(mean ? "sum" : op.def().name, std::move(part));
    }
    if (mean) folded = b.div(folded, b.scalar_like(double(inputs.size()), folded));
    return b.finish({folded});
}

}  // namespace tessera
