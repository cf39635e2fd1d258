#include "graph/evaluate/strip/loops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/numeric.h"

namespace tessera::strip {
namespace {

// A loop for each shape of operands, so that each is vectorised.
template <typename In, typename Out, typename F>
inline void map1(Lanes<In> a, int64_t n, Out* out, F f) {
    if (a.uniform) {
        const Out v = f(*a.at);
        for (int64_t i = 0; i < n; ++i) out[i] = v;
        return;
    }
    const In* x = a.at;
    for (int64_t i = 0; i < n; ++i) out[i] = f(x[i]);
}

template <typename In, typename Out, typename F>
inline void map2(Lanes<In> a, Lanes<In> b, int64_t n, Out* out, F f) {
    const In *x = a.at, *y = b.at;
    if (!a.uniform && !b.uniform) {
        for (int64_t i = 0; i < n; ++i) out[i] = f(x[i], y[i]);
    } else if (!a.uniform) {
        const In v = *y;
        for (int64_t i = 0; i < n; ++i) out[i] = f(x[i], v);
    } else if (!b.uniform) {
        const In v = *x;
        for (int64_t i = 0; i < n; ++i) out[i] = f(v, y[i]);
    } else {
        const Out v = f(*x, *y);
        for (int64_t i = 0; i < n; ++i) out[i] = v;
    }
}

template <typename F>
inline void fold(Reals v, int64_t n, double* acc, F f) {
    if (v.uniform) {
        const double x = *v.at;
        for (int64_t i = 0; i < n; ++i) acc[i] = f(acc[i], x);
    } else {
        const double* x = v.at;
        for (int64_t i = 0; i < n; ++i) acc[i] = f(acc[i], x[i]);
    }
}

double real_min(double a, double b) { return ((a < b) | (a != a)) ? a : b; }
double real_max(double a, double b) { return ((a > b) | (a != a)) ? a : b; }
double real_mod(double a, double b) {
    double r = std::fmod(a, b);
    if (r != 0 && (r < 0) != (b < 0)) r += b;
    return r == 0 ? std::copysign(0.0, b) : r;
}
double real_sign(double v) { return v != v ? v : (v > 0) - (v < 0); }

uint64_t word(int64_t v) { return static_cast<uint64_t>(v); }

}  // namespace

void real_binary(ExprKind kind, Reals a, Reals b, int64_t n, double* out) {
    switch (kind) {
        case ExprKind::Add: return map2(a, b, n, out, [](double x, double y) { return x + y; });
        case ExprKind::Sub: return map2(a, b, n, out, [](double x, double y) { return x - y; });
        case ExprKind::Mul: return map2(a, b, n, out, [](double x, double y) { return x * y; });
        case ExprKind::Div: return map2(a, b, n, out, [](double x, double y) { return x / y; });
        case ExprKind::Mod: return map2(a, b, n, out, real_mod);
        case ExprKind::Rem: return map2(a, b, n, out, [](double x, double y) { return std::fmod(x, y); });
        case ExprKind::Min: return map2(a, b, n, out, [](double x, double y) { return real_min(x, y); });
        case ExprKind::Max: return map2(a, b, n, out, [](double x, double y) { return real_max(x, y); });
        case ExprKind::Pow:
            if (b.uniform && *b.at == 2) return map1(a, n, out, [](double x) { return x * x; });
            // A square is the same whatever stands beside it.
            return map2(a, b, n, out, [](double x, double y) { return y == 2 ? x * x : std::pow(x, y); });
        default: CHECK(false, "kind {} of reals", static_cast<int>(kind));
    }
}

void real_compare(ExprKind kind, Reals a, Reals b, int64_t n, int64_t* out) {
    switch (kind) {
        case ExprKind::Lt: return map2(a, b, n, out, [](double x, double y) -> int64_t { return x < y; });
        case ExprKind::Le: return map2(a, b, n, out, [](double x, double y) -> int64_t { return x <= y; });
        case ExprKind::Eq: return map2(a, b, n, out, [](double x, double y) -> int64_t { return x == y; });
        case ExprKind::Ne: return map2(a, b, n, out, [](double x, double y) -> int64_t { return x != y; });
        default: CHECK(false, "comparison {}", static_cast<int>(kind));
    }
}

void real_call(Fn fn, Reals a, Reals b, int64_t n, double* out) {
    switch (fn) {
        case Fn::Abs: return map1(a, n, out, [](double x) { return std::fabs(x); });
        case Fn::Sign: return map1(a, n, out, real_sign);
        case Fn::Floor: return map1(a, n, out, [](double x) { return std::floor(x); });
        case Fn::Ceil: return map1(a, n, out, [](double x) { return std::ceil(x); });
        case Fn::Round: return map1(a, n, out, [](double x) { return std::nearbyint(x); });
        case Fn::Trunc: return map1(a, n, out, [](double x) { return std::trunc(x); });
        case Fn::Sqrt: return map1(a, n, out, [](double x) { return std::sqrt(x); });
        case Fn::Exp: return map1(a, n, out, [](double x) { return std::exp(x); });
        case Fn::Log: return map1(a, n, out, [](double x) { return std::log(x); });
        case Fn::Log1p: return map1(a, n, out, [](double x) { return std::log1p(x); });
        case Fn::Expm1: return map1(a, n, out, [](double x) { return std::expm1(x); });
        case Fn::Sin: return map1(a, n, out, [](double x) { return std::sin(x); });
        case Fn::Cos: return map1(a, n, out, [](double x) { return std::cos(x); });
        case Fn::Tan: return map1(a, n, out, [](double x) { return std::tan(x); });
        case Fn::Asin: return map1(a, n, out, [](double x) { return std::asin(x); });
        case Fn::Acos: return map1(a, n, out, [](double x) { return std::acos(x); });
        case Fn::Atan: return map1(a, n, out, [](double x) { return std::atan(x); });
        case Fn::Sinh: return map1(a, n, out, [](double x) { return std::sinh(x); });
        case Fn::Cosh: return map1(a, n, out, [](double x) { return std::cosh(x); });
        case Fn::Tanh: return map1(a, n, out, [](double x) { return std::tanh(x); });
        case Fn::Asinh: return map1(a, n, out, [](double x) { return std::asinh(x); });
        case Fn::Acosh: return map1(a, n, out, [](double x) { return std::acosh(x); });
        case Fn::Atanh: return map1(a, n, out, [](double x) { return std::atanh(x); });
        case Fn::Erf: return map1(a, n, out, [](double x) { return std::erf(x); });
        case Fn::Atan2: return map2(a, b, n, out, [](double x, double y) { return std::atan2(x, y); });
        default: CHECK(false, "{} of reals", fn_name(fn));
    }
}

void real_test(Fn fn, Reals a, int64_t n, int64_t* out) {
    if (fn == Fn::IsNan) return map1(a, n, out, [](double x) -> int64_t { return x != x; });
    CHECK(fn == Fn::IsInf, "{}", fn_name(fn));
    map1(a, n, out, [](double x) -> int64_t { return std::fabs(x) == std::numeric_limits<double>::infinity(); });
}

void cast_real_to_real(DType to, bool saturate, Reals a, int64_t n, double* out) {
    if (!saturate && to == DType::f64) return map1(a, n, out, [](double x) { return x; });
    if (!saturate && to == DType::f32)
        return map1(a, n, out, [](double x) { return static_cast<double>(static_cast<float>(x)); });
    if (!saturate && !a.uniform) {  // through memory, in runs
        constexpr int64_t kRun = 128;
        uint64_t stored[kRun];
        for (int64_t i = 0; i < n; i += kRun) {
            const int64_t count = std::min(kRun, n - i);
            write_reals(to, stored, 0, 1, count, a.at + i);
            read_reals(to, stored, 0, 1, count, out + i);
        }
        return;
    }
    const Overflow overflow = saturate ? Overflow::Saturate : Overflow::Special;
    map1(a, n, out, [&](double x) { return float_from_bits(to, float_to_bits(to, x, overflow)); });
}

void cast_real_to_int(DType to, bool saturate, Reals a, int64_t n, int64_t* out) {
    if (to == DType::boolean) return map1(a, n, out, [](double x) -> int64_t { return x != 0; });
    if (saturate && to != DType::i64 && to != DType::u64) {
        const double low = static_cast<double>(int_min(to)), high = static_cast<double>(int_max(to));
        return map1(a, n, out, [=](double x) -> int64_t {
            return x != x ? 0 : static_cast<int64_t>(x < low ? low : x > high ? high : x);
        });
    }
    map1(a, n, out, [=](double x) {
        int64_t stored = 0;  // as it lies in memory, which is how Cast is defined
        if (saturate && to == DType::u64 && x < 0) x = 0;
        write_real(to, &stored, 0, x);
        return read_int(to, &stored, 0);
    });
}

void cast_int_to_real(DType from, DType to, bool saturate, Ints a, int64_t n, double* out) {
    const bool u = from == DType::u64;
    if (to == DType::f64)
        return map1(a, n, out, [u](int64_t x) { return u ? static_cast<double>(word(x)) : static_cast<double>(x); });
    if (to == DType::f32)
        return map1(a, n, out,
                    [u](int64_t x) -> double { return u ? static_cast<float>(word(x)) : static_cast<float>(x); });
    const double limit = float_max(to);
    map1(a, n, out, [=](int64_t x) {
        const double v = u ? static_cast<double>(word(x)) : static_cast<double>(x);
        if (saturate && (v > limit || v < -limit)) return v < 0 ? -limit : limit;
        const bool halve = u && x < 0;  // keeps a last bit that says whether anything was lost
        uint64_t stored = 0;
        write_int(to, &stored, 0, halve ? static_cast<int64_t>(word(x) >> 1 | (word(x) & 1)) : x);
        return read_real(to, &stored, 0) * (halve ? 2 : 1);
    });
}

void cast_int_to_int(DType from, DType to, bool saturate, Ints a, int64_t n, int64_t* out) {
    if (!saturate || to == DType::boolean) return map1(a, n, out, [=](int64_t x) { return int_wrap(to, x); });
    const int64_t low = int_min(to), high = int_max(to);
    map1(a, n, out, [=](int64_t x) {
        if (from == DType::u64 && x < 0) return high;
        if (to == DType::u64) return x < 0 ? 0 : x;
        return x < low ? low : x > high ? high : x;
    });
}

void gather_reals(DType t, const void* data, const int64_t* offsets, int64_t n, double* out) {
    if (t == DType::f32) {
        const float* from = static_cast<const float*>(data);
        for (int64_t i = 0; i < n; ++i) out[i] = from[offsets[i]];
    } else if (t == DType::f64) {
        const double* from = static_cast<const double*>(data);
        for (int64_t i = 0; i < n; ++i) out[i] = from[offsets[i]];
    } else {
        for (int64_t i = 0; i < n; ++i) out[i] = read_real(t, data, offsets[i]);
    }
}

void gather_ints(DType t, const void* data, const int64_t* offsets, int64_t n, int64_t* out) {
    if (t == DType::i64) {
        const int64_t* from = static_cast<const int64_t*>(data);
        for (int64_t i = 0; i < n; ++i) out[i] = from[offsets[i]];
    } else {
        for (int64_t i = 0; i < n; ++i) out[i] = read_int(t, data, offsets[i]);
    }
}

double real_identity(ReduceOp op) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    switch (op) {
        case ReduceOp::Sum: return 0;
        case ReduceOp::Prod: return 1;
        case ReduceOp::Min: return kInf;
        case ReduceOp::Max: return -kInf;
    }
    return 0;
}

void accumulate(ReduceOp op, Reals v, int64_t n, double* acc) {
    switch (op) {
        case ReduceOp::Sum: return fold(v, n, acc, [](double x, double y) { return x + y; });
        case ReduceOp::Prod: return fold(v, n, acc, [](double x, double y) { return x * y; });
        case ReduceOp::Min: return fold(v, n, acc, [](double x, double y) { return real_min(x, y); });
        case ReduceOp::Max: return fold(v, n, acc, [](double x, double y) { return real_max(x, y); });
    }
}

// Neumaier's sum: what an addition loses is kept apart.
void accumulate_compensated(Reals v, int64_t n, double* acc, double* lost) {
    for (int64_t i = 0; i < n; ++i) {
        const double x = v.at[v.uniform ? 0 : i], a = acc[i], s = a + x;
        const double l = std::fabs(a) >= std::fabs(x) ? (a - s) + x : (x - s) + a;
        acc[i] = s;
        lost[i] += l - l == 0 ? l : 0;  // none once the sum is infinite
    }
}

double combine(ReduceOp op, const double* acc, int64_t n) {
    if (n == 1) return acc[0];
    const int64_t half = n / 2;
    const double a = combine(op, acc, half), b = combine(op, acc + half, n - half);
    switch (op) {
        case ReduceOp::Sum: return a + b;
        case ReduceOp::Prod: return a * b;
        case ReduceOp::Min: return real_min(a, b);
        case ReduceOp::Max: return real_max(a, b);
    }
    return a;
}

double combine_compensated(const double* acc, const double* lost, int64_t n) {
    double sum = 0, rest = 0;
    for (int64_t i = 0; i < n; ++i) {
        accumulate_compensated({acc + i, true}, 1, &sum, &rest);
        rest += lost[i];
    }
    return sum + rest;
}

}  // namespace tessera::strip
