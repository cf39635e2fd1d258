// Arithmetic of tiles: operands are brought to one type and one shape, and the result is a map of their elements.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "tile/builder_state.h"

namespace tessera::tile {
namespace {

using Build = Expr (*)(const Expr&, const Expr&);

struct BinaryOp {
    std::string_view name;
    enum class Of : uint8_t { Numbers, Ints, Floats } of;
    bool divides, compares;
    Build build;
};

bool is_bool(const Expr& e) { return e.dtype() == DType::boolean; }
Expr is_nan(const Expr& x) { return call(Fn::IsNan, {x}); }

// The other one where one is NaN.
Expr smaller(const Expr& a, const Expr& b) {
    if (!is_float(a.dtype())) return min(a, b);
    return select(logical_or(lt(b, a), is_nan(a)), b, a);
}
Expr larger(const Expr& a, const Expr& b) {
    if (!is_float(a.dtype())) return max(a, b);
    return select(logical_or(lt(a, b), is_nan(a)), b, a);
}
// Bools add as bits do.
Expr plus(const Expr& a, const Expr& b) { return is_bool(a) ? ne(a, b) : a + b; }
Expr minus(const Expr& a, const Expr& b) { return is_bool(a) ? ne(a, b) : a - b; }
Expr times(const Expr& a, const Expr& b) { return is_bool(a) ? logical_and(a, b) : a * b; }
Expr bits_and(const Expr& a, const Expr& b) { return is_bool(a) ? logical_and(a, b) : bit(ExprKind::BitAnd, a, b); }
Expr bits_or(const Expr& a, const Expr& b) { return is_bool(a) ? logical_or(a, b) : bit(ExprKind::BitOr, a, b); }
Expr bits_xor(const Expr& a, const Expr& b) { return is_bool(a) ? ne(a, b) : bit(ExprKind::BitXor, a, b); }

// The upper half of a product of integers, as if they had no sign.
Expr high_half(const Expr& a, const Expr& b) {
    const auto shifted = [](const Expr& x) { return bit(ExprKind::Shr, x, int_const(32, DType::u64)); };
    if (dtype_bits(a.dtype()) <= 32) {
        const auto wide = [](const Expr& x) { return cast(cast(x, DType::u32), DType::u64); };
        return cast(shifted(wide(a) * wide(b)), a.dtype());
    }
    const Expr x = cast(a, DType::u64), y = cast(b, DType::u64), low_bits = int_const(0xffffffff, DType::u64);
    const auto low = [&](const Expr& e) { return bit(ExprKind::BitAnd, e, low_bits); };
    const Expr middle = shifted(low(x) * low(y)) + low(shifted(x) * low(y)) + low(low(x) * shifted(y));
    const Expr high = shifted(x) * shifted(y) + shifted(shifted(x) * low(y)) + shifted(low(x) * shifted(y));
    return cast(high + shifted(middle), a.dtype());
}

DType integer_of(int bits, bool has_sign) {
    switch (bits) {
        case 8: return has_sign ? DType::i8 : DType::u8;
        case 16: return has_sign ? DType::i16 : DType::u16;
        case 32: return has_sign ? DType::i32 : DType::u32;
        default: return has_sign ? DType::i64 : DType::u64;
    }
}

// The sign of the left operand, where that is no literal, decides what is shifted in, whatever the type of both
// together is.
Expr shifted_right(const Expr& a, const Expr& b, bool arithmetic) {
    const DType type = a.dtype();
    if (type == DType::boolean) return logical_and(a, logical_not(b));
    if (is_signed_int(type) == arithmetic) return bit(ExprKind::Shr, a, b);
    const DType as = integer_of(dtype_bits(type), arithmetic);
    return cast(bit(ExprKind::Shr, cast(a, as), cast(b, as)), type);
}
Expr shifted_left(const Expr& a, const Expr& b) {
    return is_bool(a) ? logical_and(a, logical_not(b)) : bit(ExprKind::Shl, a, b);
}

using Of = BinaryOp::Of;
const BinaryOp kBinaryOps[] = {
    {"+", Of::Numbers, false, false, plus},
    {"-", Of::Numbers, false, false, minus},
    {"*", Of::Numbers, false, false, times},
    {"/", Of::Floats, true, false, [](const Expr& a, const Expr& b) { return a / b; }},
    {"div_rn", Of::Floats, true, false, [](const Expr& a, const Expr& b) { return a / b; }},
    {"//", Of::Ints, true, false, [](const Expr& a, const Expr& b) { return a / b; }},
    {"%", Of::Numbers, true, false, [](const Expr& a, const Expr& b) { return rem(a, b); }},
    {"&", Of::Ints, false, false, bits_and},
    {"|", Of::Ints, false, false, bits_or},
    {"^", Of::Ints, false, false, bits_xor},
    {"<<", Of::Ints, false, false, shifted_left},
    {">>", Of::Ints, false, false, [](const Expr& a, const Expr& b) { return shifted_right(a, b, true); }},
    {"min", Of::Numbers, false, false, smaller},
    {"max", Of::Numbers, false, false, larger},
    {"min_nan", Of::Numbers, false, false, [](const Expr& a, const Expr& b) { return min(a, b); }},
    {"max_nan", Of::Numbers, false, false, [](const Expr& a, const Expr& b) { return max(a, b); }},
    {"umulhi", Of::Ints, false, false, high_half},
    {"pow", Of::Floats, false, false, [](const Expr& a, const Expr& b) { return pow(a, b); }},
    {"atan2", Of::Floats, false, false,
     [](const Expr& a, const Expr& b) {
         return call(Fn::Atan2, {a, b});
     }},
    {"==", Of::Numbers, false, true, [](const Expr& a, const Expr& b) { return eq(a, b); }},
    {"!=", Of::Numbers, false, true, [](const Expr& a, const Expr& b) { return ne(a, b); }},
    {"<", Of::Numbers, false, true, [](const Expr& a, const Expr& b) { return lt(a, b); }},
    {"<=", Of::Numbers, false, true, [](const Expr& a, const Expr& b) { return le(a, b); }},
    {">", Of::Numbers, false, true, [](const Expr& a, const Expr& b) { return gt(a, b); }},
    {">=", Of::Numbers, false, true, [](const Expr& a, const Expr& b) { return ge(a, b); }},
};

struct UnaryOp {
    std::string_view name;
    bool floats;  // only those
    Expr (*build)(const Expr&);
};
template <Fn fn>
Expr called(const Expr& x) {
    return call(fn, {x});
}
Expr one_over_root(const Expr& x) { return constant(1, x.dtype()) / call(Fn::Sqrt, {x}); }
const UnaryOp kUnaryOps[] = {
    {"-", false, [](const Expr& x) { return -x; }},
    {"abs", false, called<Fn::Abs>},
    {"exp", true, called<Fn::Exp>},
    {"exp2", true, [](const Expr& x) { return call(Fn::Exp, {x * constant(std::numbers::ln2, x.dtype())}); }},
    {"log", true, called<Fn::Log>},
    {"log2", true, [](const Expr& x) { return call(Fn::Log, {x}) * constant(std::numbers::log2e, x.dtype()); }},
    {"log1p", true, called<Fn::Log1p>},
    {"expm1", true, called<Fn::Expm1>},
    {"sin", true, called<Fn::Sin>},
    {"cos", true, called<Fn::Cos>},
    {"tan", true, called<Fn::Tan>},
    {"asin", true, called<Fn::Asin>},
    {"acos", true, called<Fn::Acos>},
    {"atan", true, called<Fn::Atan>},
    {"sinh", true, called<Fn::Sinh>},
    {"cosh", true, called<Fn::Cosh>},
    {"tanh", true, called<Fn::Tanh>},
    {"erf", true, called<Fn::Erf>},
    {"sqrt", true, called<Fn::Sqrt>},
    {"rsqrt", true, one_over_root},
    {"floor", true, called<Fn::Floor>},
    {"ceil", true, called<Fn::Ceil>},
    {"rint", true, called<Fn::Round>},
    {"trunc", true, called<Fn::Trunc>},
};

Result<std::vector<Value>> brought_together(Builder& b, std::vector<Value> values) {
    std::vector<int64_t> shape;
    for (const Value& v : values) shape = TRY(common_shape(shape, v.type.shape));
    for (Value& v : values) v = TRY(b.broadcast(v, shape));
    return values;
}

Error not_integers(std::string_view op, DType a, DType b, DType common) {
    if (op == "//")
        return Error(Code::E0208, "unexpected type {} for \"//\": {} and {}", dtype_name(common), dtype_name(a),
                     dtype_name(b));
    return Error(Code::E0208, "invalid operands of type {} and {}: \"{}\" is for integers", dtype_name(a),
                 dtype_name(b), op);
}

Status refuse_pointer(std::string_view op, const Operand& x) {
    if (!is_literal(x) && type_of(x).pointer)
        return Error(Code::E0208, "\"{}\" is not for pointers ({})", op, type_of(x).to_string());
    return {};
}

}  // namespace

Result<Value> Builder::binary(std::string_view op, const Operand& a, const Operand& b) {
    const bool points_a = !is_literal(a) && type_of(a).pointer, points_b = !is_literal(b) && type_of(b).pointer;
    if (op == "+" && points_b && !points_a) return binary(op, b, a);
    if ((op == "+" || op == "-") && points_a && !points_b) {
        Value steps = TRY(constant(b));
        if (!is_int(steps.type.dtype))
            return Error(Code::E0208, "a pointer can be offset by integers, not by {}", steps.type.to_string());
        if (op == "-") steps = TRY(unary("-", TRY(cast(steps, DType::i64))));
        const std::vector<Value> both = TRY(brought_together(*this, {std::get<Value>(a), steps}));
        return state_->add({.kind = Kind::Offset, .inputs = {both[0].number, both[1].number}}, both[0].type);
    }
    const bool compares = op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=";
    if (compares && (points_a || points_b)) {
        const auto number = [&](const Operand& x) -> Result<Operand> {
            if (is_literal(x) || !type_of(x).pointer) return x;
            return Operand(TRY(address(std::get<Value>(x))));
        };
        const Operand left = TRY(number(a)), right = TRY(number(b));
        return binary(op, left, right);
    }
    TRY(refuse_pointer(op, a));
    TRY(refuse_pointer(op, b));
    const BinaryOp* found = nullptr;
    for (const BinaryOp& known : kBinaryOps)
        if (known.name == op) found = &known;
    if (!found) return Error(Code::E0501, "there is no operation \"{}\"", op);
    DType type = TRY(common_type(dtype_of(a), is_literal(a), dtype_of(b), is_literal(b), found->divides));
    if (found->of == Of::Floats && !is_float(type)) type = DType::f32;
    if (found->of == Of::Ints && is_float(type)) return not_integers(op, dtype_of(a), dtype_of(b), type);
    // The quotient of bools is their conjunction; a remainder is 0, or undefined.
    const bool divides_bools = found->divides && type == DType::boolean;
    if (divides_bools) type = DType::i32;
    std::vector<Value> values{TRY(constant(a, type)), TRY(constant(b, type))};
    values = TRY(brought_together(*this, std::move(values)));
    const Expr body =
        op == ">>" ? shifted_right(element(0, type), element(1, type), is_signed_int(dtype_of(is_literal(a) ? b : a)))
                   : found->build(element(0, type), element(1, type));
    Value made = state_->map(values, body, found->compares ? DType::boolean : type);
    if (op == "div_rn") state_->region().instructions.back().word = "rounded";
    return divides_bools ? cast(made, DType::boolean) : made;
}

Result<Value> Builder::unary(std::string_view op, const Operand& a) {
    TRY(refuse_pointer(op, a));
    Value x = TRY(constant(a));
    const DType type = x.type.dtype;
    if (op == "not" || op == "~") {
        if (is_float(type)) return Error(Code::E0208, "\"{}\" is not for {}", op, x.type.to_string());
        if (op == "not" && type != DType::boolean) return binary("==", x, int64_t{0});
        const Expr e = element(0, type);
        return state_->map({x}, type == DType::boolean ? logical_not(e) : bit_not(e), type);
    }
    for (const UnaryOp& known : kUnaryOps) {
        if (known.name != op) continue;
        if (known.floats && !is_float(type))
            return Error(Code::E0208, "{} is for floats, not for {}", op, x.type.to_string()).hint("cast it first");
        if (type == DType::boolean) return Error(Code::E0208, "\"{}\" is not for {}", op, x.type.to_string());
        if (op == "abs" && is_unsigned_int(type)) return x;
        return state_->map({x}, known.build(element(0, type)), type);
    }
    return Error(Code::E0501, "there is no function \"{}\"", op);
}

Result<Value> Builder::select(const Operand& condition, const Operand& a, const Operand& b) {
    Value chosen = TRY(constant(condition));
    if (chosen.type.dtype != DType::boolean) chosen = TRY(binary("!=", chosen, int64_t{0}));
    std::vector<Value> values;
    const bool points = !is_literal(a) && type_of(a).pointer;
    if (points) {
        if (is_literal(b) || !type_of(b).pointer || type_of(b).dtype != type_of(a).dtype ||
            type_of(b).then != type_of(a).then)
            return Error(Code::E0208, "where() cannot select between a pointer and a value of another type");
        const std::vector<Value> three = TRY(brought_together(*this, {chosen, std::get<Value>(a), std::get<Value>(b)}));
        return state_->add({.kind = Kind::Choose, .inputs = {three[0].number, three[1].number, three[2].number}},
                           three[1].type);
    }
    const DType type = TRY(common_type(dtype_of(a), is_literal(a), dtype_of(b), is_literal(b)));
    values = TRY(brought_together(*this, {chosen, TRY(constant(a, type)), TRY(constant(b, type))}));
    return state_->map(values, tessera::select(element(0, DType::boolean), element(1, type), element(2, type)), type);
}

Result<Value> Builder::fma(const Operand& a, const Operand& b, const Operand& c) {
    return binary("+", TRY(binary("*", a, b)), c);
}

Result<Value> Builder::cast(const Value& x, DType dtype) {
    if (x.type.pointer) return Error(Code::E0208, "cannot cast {} to {}", x.type.to_string(), dtype_name(dtype));
    if (x.type.dtype == dtype) return x;
    const Expr from = element(0, x.type.dtype);
    const bool saturates = is_float(dtype) && dtype_bits(dtype) <= 8;  // as in Triton
    return state_->map({x}, saturates ? cast_saturate(from, dtype) : tessera::cast(from, dtype), dtype);
}

Result<Value> Builder::bitcast(const Value& x, DType dtype) {
    const auto bits = [](DType t) { return t == DType::boolean ? 8 : dtype_bits(t); };
    if (x.type.pointer || bits(x.type.dtype) != bits(dtype))
        return Error(Code::E0208, "Cannot bitcast data-type of size {} to data-type of size {}: {} to {}",
                     x.type.pointer ? 64 : bits(x.type.dtype), bits(dtype), x.type.to_string(), dtype_name(dtype));
    if (x.type.dtype == dtype) return x;
    if (!is_float(x.type.dtype) && !is_float(dtype)) return cast(x, dtype);
    return state_->add({.kind = Kind::Bits, .inputs = {x.number}},
                       {.dtype = dtype, .pointer = false, .shape = x.type.shape});
}

Result<Value> Builder::address(const Value& pointer) {
    if (!pointer.type.pointer) return Error(Code::E0208, "{} is not a pointer", pointer.type.to_string());
    return state_->add({.kind = Kind::Address, .inputs = {pointer.number}},
                       {.dtype = DType::i64, .pointer = false, .shape = pointer.type.shape});
}

Result<Value> Builder::pointer_at(const Value& address, DType dtype, std::optional<DType> then) {
    if (address.type.pointer) return pointer_at(TRY(this->address(address)), dtype, then);
    if (!is_int(address.type.dtype)) return Error(Code::E0208, "{} is not an address", address.type.to_string());
    const Value wide = TRY(cast(address, DType::i64));
    return state_->add(
        {.kind = Kind::PointerAt, .inputs = {wide.number}},
        {.dtype = then ? DType::i64 : dtype, .pointer = true, .shape = address.type.shape, .then = then});
}

}  // namespace tessera::tile
