// Element-wise arithmetic: add, sub, mul, div, mod, pow, neg, abs, min, max, sum, mean, bit operations.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

using BinaryExpr = Expr (*)(const Expr&, const Expr&);

OpDef binary(std::string name, const char* onnx, std::vector<Trait> traits, BinaryExpr f) {
    traits.push_back(Trait::Pure);
    traits.push_back(Trait::Elementwise);
    return {
        .name = std::move(name),
        .inputs = {"a: T", "b: T"},
        .outputs = {"y: T"},
        .types = {{"T", kNumbers}},
        .traits = std::move(traits),
        .onnx = {onnx, {numpy_broadcast_from_7()}},
        .body = [f](const OpView& op, const Indices& o) { return f(op.broadcast_in(0, o), op.broadcast_in(1, o)); },
    };
}

// Min, Max, Sum, Mean take any number of operands.
OpDef variadic(std::string name, const char* onnx, std::function<Expr(Expr, size_t)> finish, BinaryExpr f) {
    return {
        .name = std::move(name),
        .inputs = {"inputs...: T"},
        .outputs = {"y: T"},
        .types = {{"T", kNumbers}},
        .traits = {Trait::Pure, Trait::Elementwise, Trait::Commutative},
        .onnx = onnx,
        .body =
            [f, finish](const OpView& op, const Indices& o) {
                Expr y = op.broadcast_in(0, o);
                for (size_t i = 1; i < op.input_count(); ++i) y = f(y, op.broadcast_in(i, o));
                return finish ? finish(y, op.input_count()) : y;
            },
    };
}

OpDef unary(std::string name, const char* onnx, DTypes types, std::function<Expr(Expr)> f) {
    return {
        .name = std::move(name),
        .inputs = {"x: T"},
        .outputs = {"y: T"},
        .types = {{"T", types}},
        .traits = {Trait::Pure, Trait::Elementwise},
        .onnx = onnx,
        .body = [f](const OpView& op, const Indices& o) { return f(op.in(0).at(o)); },
    };
}

OpDef bitwise(std::string name, const char* onnx, ExprKind kind) {
    return {
        .name = std::move(name),
        .inputs = {"a: T", "b: T"},
        .outputs = {"y: T"},
        .types = {{"T", kInts}},
        .traits = {Trait::Pure, Trait::Elementwise, Trait::Commutative},
        .onnx = onnx,
        .body = [kind](const OpView& op,
                       const Indices& o) { return bit(kind, op.broadcast_in(0, o), op.broadcast_in(1, o)); },
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
            if (is_int(a.dtype()) && is_float(b.dtype())) return cast(pow(cast(a, DType::f64), cast(b, DType::f64)), a.dtype());
            return pow(a, cast(b, a.dtype()));
        },
};

const OpDef kBitShift{
    .name = "bit_shift",
    .inputs = {"x: T", "amount: T"},
    .outputs = {"y: T"},
    .attrs = {string_attr("direction").required()},
    .types = {{"T", kInts}},
    .traits = {Trait::Pure, Trait::Elementwise},
    .onnx = "BitShift",
    .infer = [](const OpView& op) -> Result<Types> {
        const std::string& d = op.string("direction");
        if (d != "LEFT" && d != "RIGHT") return op.error(Code::E0212, "direction is \"{}\", not LEFT or RIGHT", d);
        auto shape = broadcast(op.shape(0), op.shape(1));
        if (!shape) return op.shape_error("{} and {} do not broadcast", op.shape(0), op.shape(1));
        return op.like(0, *shape);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto kind = op.string("direction") == "LEFT" ? ExprKind::Shl : ExprKind::Shr;
            return bit(kind, op.broadcast_in(0, o), op.broadcast_in(1, o));
        },
};

}  // namespace

std::vector<OpDef> arithmetic_ops() {
    auto plus = [](const Expr& a, const Expr& b) { return a + b; };
    return {
        binary("add", "Add", {Trait::Commutative}, plus),
        binary("sub", "Sub", {}, [](const Expr& a, const Expr& b) { return a - b; }),
        binary("mul", "Mul", {Trait::Commutative, Trait::Bilinear}, [](const Expr& a, const Expr& b) { return a * b; }),
        binary("div", "Div", {Trait::Linear}, [](const Expr& a, const Expr& b) { return a / b; }),
        variadic("min", "Min", {}, [](const Expr& a, const Expr& b) { return min(a, b); }),
        variadic("max", "Max", {}, [](const Expr& a, const Expr& b) { return max(a, b); }),
        variadic("sum", "Sum", {}, plus),
        variadic("mean", "Mean", [](Expr y, size_t n) { return y / constant(double(n), y.dtype()); }, plus),
        unary("neg", "Neg", kNumbers, [](Expr x) { return -x; }),
        unary("abs", "Abs", kNumbers, [](Expr x) { return call(Fn::Abs, {x}); }),
        unary("sign", "Sign", kNumbers, [](Expr x) { return call(Fn::Sign, {x}); }),
        unary("reciprocal", "Reciprocal", kFloats, [](Expr x) { return constant(1, x.dtype()) / x; }),
        unary("bitwise_not", "BitwiseNot", kInts, [](Expr x) { return bit_not(x); }),
        bitwise("bitwise_and", "BitwiseAnd", ExprKind::BitAnd),
        bitwise("bitwise_or", "BitwiseOr", ExprKind::BitOr),
        bitwise("bitwise_xor", "BitwiseXor", ExprKind::BitXor),
        kMod,
        kPow,
        kBitShift,
    };
}

}  // namespace tessera
