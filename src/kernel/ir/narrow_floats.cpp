#include "kernel/ir/narrow_floats.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/numeric.h"

namespace tessera {
namespace {

struct Format {
    int exponent, mantissa, bias;
    bool infinite = false;     // has infinity, with NaN above it
    bool zero_is_nan = false;  // no negative zero: its bits are NaN
    bool has_nan = true;
    int64_t sign() const { return int64_t{1} << (exponent + mantissa); }
    int64_t infinity() const { return ((int64_t{1} << exponent) - 1) << mantissa; }
    int64_t largest() const {  // finite
        if (infinite) return infinity() - 1;
        return zero_is_nan || !has_nan ? sign() - 1 : sign() - 2;
    }
    double unit() const { return std::ldexp(1.0, 1 - bias - mantissa); }  // the smallest number above 0
};

Format format_of(DType t) {
    switch (t) {
        case DType::f8e4m3fn: return {4, 3, 7};
        case DType::f8e4m3fnuz: return {4, 3, 8, false, true};
        case DType::f8e5m2: return {5, 2, 15, true};
        case DType::f8e5m2fnuz: return {5, 2, 16, false, true};
        case DType::f4e2m1: return {2, 1, 1, false, false, false};
        default: CHECK(false, "{} is no narrow float with a sign", dtype_name(t));
    }
}

Expr with_bits(ExprKind kind, const Expr& a, int64_t b) { return bit(kind, a, int_const(b, a.dtype())); }

// 2^n for n in [0, 254], as a product of powers that an i64 holds.
Expr power_of_two(const Expr& n) {
    constexpr int64_t kStep = 60;
    Expr made = real_const(1);
    for (int64_t from = 0; from < 255; from += kStep) {
        Expr part = min(max(n - from, Expr(0)), Expr(kStep));
        made = made * cast(bit(ExprKind::Shl, Expr(1), part), DType::f64);
    }
    return made;
}

}  // namespace

DType stored_as(DType t) { return kNarrowFloats.has(t) ? DType::u8 : t; }

Expr decoded(DType t, const Expr& bits) {
    const Expr nan = real_const(std::numeric_limits<double>::quiet_NaN(), DType::f32);
    if (t == DType::f8e8m0) {
        Expr n = cast(bits, DType::i64);
        Expr value = cast(power_of_two(n) * real_const(std::ldexp(1.0, -127)), DType::f32);
        return select(eq(bits, int_const(255, DType::u8)), nan, value);
    }
    const Format f = format_of(t);
    Expr i = cast(bits, DType::i64), magnitude = with_bits(ExprKind::BitAnd, i, f.sign() - 1);
    Expr exponent = with_bits(ExprKind::Shr, magnitude, f.mantissa);
    Expr mantissa = with_bits(ExprKind::BitAnd, magnitude, (int64_t{1} << f.mantissa) - 1);
    Expr normal =
        bit(ExprKind::Shl, with_bits(ExprKind::BitOr, mantissa, int64_t{1} << f.mantissa), max(exponent - 1, Expr(0)));
    Expr units = select(eq(exponent, 0), mantissa, normal);
    Expr value = cast(units, DType::f32) * real_const(f.unit(), DType::f32);
    if (f.infinite)
        value = select(lt(magnitude, Expr(f.infinity())), value,
                       select(eq(magnitude, Expr(f.infinity())), infinity(DType::f32), nan));
    else if (f.has_nan && !f.zero_is_nan)
        value = select(eq(magnitude, Expr(f.sign() - 1)), nan, value);
    Expr negative = ne(with_bits(ExprKind::BitAnd, i, f.sign()), Expr(0));
    value = select(negative, -value, value);
    return f.zero_is_nan ? select(eq(i, Expr(f.sign())), nan, value) : value;
}

// Written so that `given` stands in it a dozen times, not hundreds: an expression's text grows with that.
Expr encoded(DType t, const Expr& given, bool saturate) {
    if (t == DType::f8e8m0) return int_const(255, DType::u8);  // casts to it have a rounding of their own
    const Format f = format_of(t);
    const bool wide = given.dtype() == DType::f64 || !is_float(given.dtype());
    const DType real = wide ? DType::f64 : DType::f32;
    auto number = [&](double v) { return real_const(v, real); };
    auto power = [&](const Expr& n) { return cast(bit(ExprKind::Shl, Expr(1), n), real); };
    Expr x = cast(given, real);
    // In units of the smallest number, and how often that must be halved to have no more digits than the type: by its
    // logarithm, which may be one off.
    Expr s = min(call(Fn::Abs, {x}), number(std::ldexp(1.0, f.bias + 2))) * number(1 / f.unit());
    Expr digits = call(Fn::Floor, {call(Fn::Log, {max(s, number(1))}) * number(1 / std::log(2.0))});
    Expr near = max(cast(digits, DType::i64) - int64_t{f.mantissa}, Expr(0));
    Expr halvings = near + select(ge(s, power(near + int64_t{f.mantissa + 1})), Expr(1), Expr(0)) -
                    select(logical_and(gt(near, Expr(0)), lt(s, power(near + int64_t{f.mantissa}))), Expr(1), Expr(0));
    // A carry out of the digits moves the exponent up, as it should. Above the largest number comes what stands for
    // all that are larger: infinity or NaN.
    Expr magnitude = halvings * (int64_t{1} << f.mantissa) + cast(call(Fn::Round, {s / power(halvings)}), DType::i64);
    magnitude = min(magnitude, Expr(f.largest() + (saturate || !f.has_nan ? 0 : 1)));
    Expr negative = f.zero_is_nan ? logical_and(lt(x, number(0)), gt(s, number(0.5)))
                                  : select(eq(x, number(0)), lt(number(1) / x, number(0)), lt(x, number(0)));
    Expr bits = bit(ExprKind::BitOr, magnitude, select(negative, Expr(f.sign()), Expr(0)));
    const int64_t nan = !f.has_nan || f.zero_is_nan ? f.sign()
                        : f.infinite                ? f.infinity() | int64_t{1} << (f.mantissa - 1)
                                                    : f.sign() - 1;
    return cast(select(call(Fn::IsNan, {x}), Expr(nan), bits), DType::u8);
}

}  // namespace tessera
