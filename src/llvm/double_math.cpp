#include "llvm/double_math.h"

#include <llvm/IR/Intrinsics.h>

#include <cmath>
#include <limits>

#include "base/check.h"

namespace tessera::codegen {
namespace {

namespace in = llvm::Intrinsic;

constexpr double kDoubleInfinity = std::numeric_limits<double>::infinity(),
                 kDoubleNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kDoubleLn2High = 6.93147180369123816490e-01, kDoubleLn2Low = 1.90821492927058770002e-10;
constexpr double kDoublePi = 3.14159265358979311600e+00;
// pi/2 in parts whose products with a small integer are exact.
constexpr double kDoubleHalfPi1 = 1.57079632673412561417e+00, kDoubleHalfPi2 = 6.07710050630396597660e-11,
                 kDoubleHalfPi3 = 2.02226624879595063154e-21;

// 1, 1/(1+step), 1/((1+step)(2+step)...): what power series of exp, sin and cos have, with signs.
std::vector<double> inverse_factorials(int first, int step, int count, bool alternate) {
    std::vector<double> out;
    for (int i = 0; i < count; ++i) {
        double f = 1;
        for (int k = 2; k <= first + i * step; ++k) f *= k;
        out.push_back((alternate && i % 2 ? -1 : 1) / f);
    }
    return out;
}

}  // namespace

DoubleMath::Value* DoubleMath::real(double c) { return llvm::ConstantFP::get(type_, c); }
llvm::Type* DoubleMath::ints() { return type_->getWithNewType(b_.getInt64Ty()); }
DoubleMath::Value* DoubleMath::integer(int64_t c) {
    return llvm::ConstantInt::get(ints(), static_cast<uint64_t>(c), true);
}
DoubleMath::Value* DoubleMath::magnitude(Value* x) { return one(in::fabs, x); }
DoubleMath::Value* DoubleMath::sqrt(Value* x) { return one(in::sqrt, x); }
DoubleMath::Value* DoubleMath::fma(Value* a, Value* b, Value* c) {
    return b_.CreateIntrinsic(in::fma, {type_}, {a, b, c});
}

DoubleMath::Value* DoubleMath::polynomial(Value* x, const std::vector<double>& low_first) {
    Value* sum = real(low_first.back());
    for (size_t i = low_first.size() - 1; i-- > 0;) sum = fma(sum, x, real(low_first[i]));
    return sum;
}

DoubleMath::Value* DoubleMath::power_of_two(Value* n) {
    Value* bits = b_.CreateShl(b_.CreateAdd(n, integer(1023)), integer(52));
    return b_.CreateBitCast(bits, type_);
}

DoubleMath::Value* DoubleMath::call(std::string_view name, Value* x, Value* y) {
    type_ = x->getType();
    if (name == "exp") return exp(x);
    if (name == "expm1") return expm1(x);
    if (name == "log") return log(x);
    if (name == "log1p") return log1p(x);
    if (name == "sin") return sin(x, false);
    if (name == "cos") return sin(x, true);
    if (name == "tan") return div(sin(x, false), sin(x, true));
    if (name == "asin") return asin(x);
    if (name == "acos") return acos(x);
    if (name == "atan") return atan(x);
    if (name == "sinh") return sinh(x);
    if (name == "cosh") return cosh(x);
    if (name == "tanh") return tanh(x);
    if (name == "asinh") return asinh(x);
    if (name == "acosh") return acosh(x);
    if (name == "atanh") return atanh(x);
    if (name == "erf") return erf(x);
    if (name == "atan2") return atan2(x, y);
    if (name == "pow") return pow(x, y);
    CHECK(name == "fmod", "there is no function {}", name);
    return fmod(x, y);
}

// x = n ln 2 + rest, and a power series of the rest, |rest| <= ln 2 / 2.
DoubleMath::Value* DoubleMath::exp(Value* x) {
    Value* bounded = choose(b_.CreateFCmpOGT(x, real(710)), real(710), x);
    bounded = choose(b_.CreateFCmpOLT(bounded, real(-746)), real(-746), bounded);
    Value* n = one(in::roundeven, mul(bounded, real(1.44269504088896338700)));
    Value* rest = fma(n, real(-kDoubleLn2Low), fma(n, real(-kDoubleLn2High), bounded));
    Value* series = polynomial(rest, inverse_factorials(0, 1, 14, false));
    Value* whole = b_.CreateIntrinsic(in::fptosi_sat, {ints(), type_}, {n});
    Value* half = b_.CreateAShr(whole, integer(1));
    Value* scaled = mul(mul(series, power_of_two(half)), power_of_two(b_.CreateSub(whole, half)));
    scaled = choose(b_.CreateFCmpOGT(x, real(709.782712893384)), real(kDoubleInfinity), scaled);
    return choose(b_.CreateFCmpUNO(x, x), x, scaled);
}

DoubleMath::Value* DoubleMath::expm1(Value* x) {
    Value* near = mul(x, polynomial(x, inverse_factorials(1, 1, 15, false)));
    return choose(b_.CreateFCmpOLT(magnitude(x), real(0.4)), near, sub(exp(x), real(1)));
}

// x = m 2^e with m about 1, and log m = 2 atanh((m - 1) / (m + 1)).
DoubleMath::Value* DoubleMath::log(Value* x) {
    Value* small = b_.CreateFCmpOLT(x, real(std::numeric_limits<double>::min()));
    Value* normal = choose(small, mul(x, real(0x1p54)), x);
    Value* bits = b_.CreateBitCast(normal, ints());
    Value* above = b_.CreateSub(bits, integer(0x3fe6a09e667f3bcd));  // the root of a half
    Value* exponent = b_.CreateAShr(above, integer(52));
    Value* m = b_.CreateBitCast(b_.CreateSub(bits, b_.CreateShl(exponent, integer(52))), type_);
    exponent = choose(small, b_.CreateSub(exponent, integer(54)), exponent);
    Value* e = b_.CreateSIToFP(exponent, type_);
    Value* f = sub(m, real(1));
    Value* s = div(f, add(f, real(2)));
    std::vector<double> series;
    for (int i = 1; i <= 11; ++i) series.push_back(2.0 / (2 * i + 1));
    Value* square = mul(s, s);
    Value* tail = mul(mul(s, square), polynomial(square, series));
    // 2 s = f - s f, where f is exact.
    Value* mantissa = add(f, fma(b_.CreateFNeg(s), f, tail));
    Value* out = fma(e, real(kDoubleLn2High), fma(e, real(kDoubleLn2Low), mantissa));
    out = choose(b_.CreateFCmpOEQ(x, real(0)), real(-kDoubleInfinity), out);
    out = choose(b_.CreateFCmpOLT(x, real(0)), real(kDoubleNan), out);
    return choose(b_.CreateFCmpUNO(x, real(0)), x, choose(b_.CreateFCmpOEQ(x, real(kDoubleInfinity)), x, out));
}

// What rounding took from 1 + x is given back.
DoubleMath::Value* DoubleMath::log1p(Value* x) {
    Value* sum = add(x, real(1));
    Value* rest = sub(x, sub(sum, real(1)));
    Value* out = add(log(sum), div(rest, sum));
    Value* whole = b_.CreateOr(b_.CreateFCmpOEQ(sum, real(1)), b_.CreateFCmpOEQ(x, real(kDoubleInfinity)));
    out = choose(b_.CreateFCmpOEQ(x, real(-1)), real(-kDoubleInfinity), out);
    return choose(whole, x, out);
}

DoubleMath::Value* DoubleMath::sinh(Value* x) {
    Value* a = magnitude(x);
    Value* e = expm1(a);
    Value* near = mul(real(0.5), add(e, div(e, add(e, real(1)))));
    Value* half = exp(mul(a, real(0.5)));
    Value* far = mul(mul(half, real(0.5)), half);
    return b_.CreateCopySign(choose(b_.CreateFCmpOGT(a, real(22)), far, near), x);
}

DoubleMath::Value* DoubleMath::cosh(Value* x) {
    Value* a = magnitude(x);
    Value* e = exp(a);
    Value* near = mul(real(0.5), add(e, div(real(1), e)));
    Value* half = exp(mul(a, real(0.5)));
    return choose(b_.CreateFCmpOGT(a, real(22)), mul(mul(half, real(0.5)), half), near);
}

DoubleMath::Value* DoubleMath::tanh(Value* x) {
    Value* a = magnitude(x);
    Value* e = expm1(mul(a, real(2)));
    Value* out = choose(b_.CreateFCmpOGT(a, real(22)), real(1), div(e, add(e, real(2))));
    return choose(b_.CreateFCmpUNO(x, x), x, b_.CreateCopySign(out, x));
}

DoubleMath::Value* DoubleMath::asinh(Value* x) {
    Value* a = magnitude(x);
    Value* square = mul(a, a);
    Value* near = log1p(add(a, div(square, add(real(1), sqrt(add(square, real(1)))))));
    Value* far = add(log(a), real(0.693147180559945286));
    return b_.CreateCopySign(choose(b_.CreateFCmpOGT(a, real(1e8)), far, near), x);
}

DoubleMath::Value* DoubleMath::acosh(Value* x) {
    Value* t = sub(x, real(1));
    Value* near = log1p(add(t, sqrt(fma(t, t, mul(t, real(2))))));
    Value* far = add(log(x), real(0.693147180559945286));
    Value* out = choose(b_.CreateFCmpOGT(x, real(1e8)), far, near);
    return choose(b_.CreateFCmpOLT(x, real(1)), real(kDoubleNan), out);
}

DoubleMath::Value* DoubleMath::atanh(Value* x) {
    Value* a = magnitude(x);
    Value* out = mul(real(0.5), log1p(div(mul(a, real(2)), sub(real(1), a))));
    out = choose(b_.CreateFCmpOGT(a, real(1)), real(kDoubleNan), out);
    return b_.CreateCopySign(out, x);
}

// exp(-x^2) times a series whose terms are all positive; 1 from where nothing is left.
DoubleMath::Value* DoubleMath::erf(Value* x) {
    Value* a = magnitude(x);
    Value* bounded = choose(b_.CreateFCmpOLT(a, real(6)), a, real(6));
    Value* square = mul(bounded, bounded);
    std::vector<double> series{1.12837916709551255856};
    for (int i = 1; i < 110; ++i) series.push_back(series.back() * 2 / (2 * i + 1));
    Value* out = mul(mul(bounded, exp(b_.CreateFNeg(square))), polynomial(square, series));
    out = choose(b_.CreateFCmpOGT(a, real(5.93)), real(1), out);
    return choose(b_.CreateFCmpUNO(x, x), x, b_.CreateCopySign(out, x));
}

// |x| or its inverse, halved twice: atan(x) = 2 atan(x / (1 + sqrt(1 + x^2))).
DoubleMath::Value* DoubleMath::atan(Value* x) {
    Value* a = magnitude(x);
    Value* large = b_.CreateFCmpOGT(a, real(1));
    Value* t = choose(large, div(real(1), a), a);
    for (int i = 0; i < 2; ++i) t = div(t, add(real(1), sqrt(fma(t, t, real(1)))));
    std::vector<double> series;
    for (int i = 0; i < 14; ++i) series.push_back((i % 2 ? -1.0 : 1.0) / (2 * i + 1));
    Value* out = mul(mul(t, real(4)), polynomial(mul(t, t), series));
    out = choose(large, sub(real(kDoublePi / 2), out), out);
    return b_.CreateCopySign(out, x);
}

DoubleMath::Value* DoubleMath::asin(Value* x) {
    Value* root = sqrt(mul(sub(real(1), x), add(real(1), x)));
    return choose(b_.CreateFCmpOEQ(x, real(0)), x, atan(div(x, root)));
}

DoubleMath::Value* DoubleMath::acos(Value* x) {
    return mul(real(2), atan(sqrt(div(sub(real(1), x), add(real(1), x)))));
}

DoubleMath::Value* DoubleMath::atan2(Value* y, Value* x) {
    Value *ay = magnitude(y), *ax = magnitude(x);
    Value* ratio = div(ay, ax);
    ratio = choose(b_.CreateFCmpOEQ(ay, ax), real(1), ratio);  // also of infinities
    ratio = choose(b_.CreateFCmpOEQ(ay, real(0)), choose(b_.CreateFCmpUNO(x, x), x, real(0)), ratio);  // also of zeros
    Value* out = atan(ratio);
    Value* negative = b_.CreateICmpSLT(b_.CreateBitCast(x, ints()), integer(0));
    out = choose(negative, sub(real(kDoublePi), out), out);
    return b_.CreateCopySign(choose(b_.CreateFCmpUNO(x, y), real(kDoubleNan), out), y);
}

// exp(y log x), what rounding takes from the product given back.
DoubleMath::Value* DoubleMath::pow(Value* x, Value* y) {
    Value *a = magnitude(x), *l = log(a);
    Value* high = mul(y, l);
    Value* low = fma(y, l, b_.CreateFNeg(high));
    Value* normal = b_.CreateFCmpOLT(magnitude(high), real(745));
    Value* grown = exp(high);
    Value* out = choose(normal, fma(grown, low, grown), grown);
    Value* whole = b_.CreateFCmpOEQ(one(in::trunc, y), y);
    // By squares where the exponent is a small integer: what can be held is exact.
    Value* few = b_.CreateIntrinsic(in::fptosi_sat, {ints(), type_}, {magnitude(y)});
    Value *squared = real(1), *square = a;
    for (int bit = 0; bit < 6; ++bit) {
        Value* set = b_.CreateICmpNE(b_.CreateAnd(few, integer(int64_t{1} << bit)), integer(0));
        squared = choose(set, mul(squared, square), squared);
        if (bit < 5) square = mul(square, square);
    }
    squared = choose(b_.CreateFCmpOLT(y, real(0)), div(real(1), squared), squared);
    out = choose(b_.CreateAnd(whole, b_.CreateFCmpOLT(magnitude(y), real(64))), squared, out);
    Value* half = mul(y, real(0.5));
    Value* odd = b_.CreateAnd(whole, b_.CreateFCmpUNE(one(in::trunc, half), half));
    Value* below = b_.CreateICmpSLT(b_.CreateBitCast(x, ints()), integer(0));
    out = choose(b_.CreateAnd(below, odd), b_.CreateFNeg(out), out);
    Value* undefined = b_.CreateAnd(b_.CreateFCmpOLT(x, real(0)), b_.CreateNot(whole));
    undefined = b_.CreateAnd(undefined, b_.CreateFCmpOGT(x, real(-kDoubleInfinity)));
    out = choose(undefined, real(kDoubleNan), out);
    // An infinite exponent, and what is 1 whatever the other is.
    Value* endless = b_.CreateFCmpOEQ(magnitude(y), real(kDoubleInfinity));
    Value* grows = b_.CreateXor(b_.CreateFCmpOLT(a, real(1)), b_.CreateFCmpOGT(y, real(0)));
    Value* end = choose(b_.CreateFCmpOEQ(a, real(1)), real(1), choose(grows, real(kDoubleInfinity), real(0)));
    out = choose(endless, choose(b_.CreateFCmpUNO(x, x), x, end), out);
    Value* none = b_.CreateOr(b_.CreateFCmpOEQ(y, real(0)), b_.CreateFCmpOEQ(x, real(1)));
    return choose(none, real(1), choose(b_.CreateFCmpUNO(x, y), add(x, y), out));
}

DoubleMath::Value* DoubleMath::fmod(Value* x, Value* y) {
    Value *a = magnitude(x), *b = magnitude(y);
    Value* quotient = one(in::trunc, div(a, b));
    Value* rest = fma(b_.CreateFNeg(quotient), b, a);
    rest = choose(b_.CreateFCmpOLT(rest, real(0)), add(rest, b), rest);  // the quotient was rounded up
    rest = choose(b_.CreateFCmpOGE(rest, b), sub(rest, b), rest);
    rest = choose(b_.CreateFCmpOEQ(b, real(kDoubleInfinity)), a, rest);
    rest = choose(b_.CreateFCmpOEQ(a, real(kDoubleInfinity)), real(kDoubleNan), rest);
    return b_.CreateCopySign(rest, x);
}

DoubleMath::Quarter DoubleMath::quarter(Value* x) {
    Value* n = one(in::roundeven, mul(x, real(2 / kDoublePi)));
    Value* rest = fma(n, real(-kDoubleHalfPi3), fma(n, real(-kDoubleHalfPi2), fma(n, real(-kDoubleHalfPi1), x)));
    Value* square = mul(rest, rest);
    Value* sine = fma(mul(rest, square),
                      polynomial(square,
                                 [] {
                                     std::vector<double> c = inverse_factorials(1, 2, 10, true);
                                     return std::vector<double>(c.begin() + 1, c.end());
                                 }()),
                      rest);
    Value* cosine = polynomial(square, inverse_factorials(0, 2, 10, true));
    return {sine, cosine, b_.CreateIntrinsic(in::fptosi_sat, {ints(), type_}, {n})};
}

DoubleMath::Value* DoubleMath::sin(Value* x, bool cosine) {
    Quarter q = quarter(x);
    Value* number = cosine ? b_.CreateAdd(q.number, integer(1)) : q.number;
    Value* odd = b_.CreateICmpNE(b_.CreateAnd(number, integer(1)), integer(0));
    Value* out = choose(odd, q.cosine, q.sine);
    Value* negative = b_.CreateICmpNE(b_.CreateAnd(number, integer(2)), integer(0));
    out = choose(negative, b_.CreateFNeg(out), out);
    return choose(b_.CreateFCmpOLT(magnitude(x), real(kDoubleInfinity)), out, real(kDoubleNan));
}

}  // namespace tessera::codegen
