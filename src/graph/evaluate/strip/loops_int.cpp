#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/numeric.h"
#include "graph/evaluate/strip/loops.h"

namespace tessera::strip {
namespace {

uint64_t bits(int64_t v) { return static_cast<uint64_t>(v); }
int64_t value(uint64_t v) { return static_cast<int64_t>(v); }

template <typename F>
inline void map1(Ints a, int64_t n, int64_t* out, F f) {
    const int64_t* x = a.at;
    if (a.uniform) {
        const int64_t v = f(*x);
        for (int64_t i = 0; i < n; ++i) out[i] = v;
    } else {
        for (int64_t i = 0; i < n; ++i) out[i] = f(x[i]);
    }
}

template <typename F>
inline void map2(Ints a, Ints b, int64_t n, int64_t* out, F f) {
    const int64_t *x = a.at, *y = b.at;
    if (!a.uniform && !b.uniform) {
        for (int64_t i = 0; i < n; ++i) out[i] = f(x[i], y[i]);
    } else if (!a.uniform) {
        const int64_t v = *y;
        for (int64_t i = 0; i < n; ++i) out[i] = f(x[i], v);
    } else {
        for (int64_t i = 0; i < n; ++i) out[i] = f(*x, y[b.uniform ? 0 : i]);
    }
}

void wrap(DType t, int64_t n, int64_t* out) {
    if (dtype_bits(t) == 64) return;
    if (t == DType::boolean) {
        for (int64_t i = 0; i < n; ++i) out[i] = out[i] != 0;
        return;
    }
    const int spare = 64 - dtype_bits(t);
    if (is_signed_int(t)) {
        for (int64_t i = 0; i < n; ++i) out[i] = value(bits(out[i]) << spare) >> spare;
    } else {
        for (int64_t i = 0; i < n; ++i) out[i] = value(bits(out[i]) << spare >> spare);
    }
}

int64_t quotient(int64_t a, int64_t b) {
    if (b == 0) return 0;
    return b == -1 ? value(0 - bits(a)) : a / b;
}
int64_t remainder(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
int64_t floor_quotient(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return value(0 - bits(a));
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}
int64_t floor_remainder(int64_t a, int64_t b) {
    int64_t r = remainder(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t power(int64_t base, int64_t exponent, bool is_unsigned) {
    if (!is_unsigned && exponent < 0) {
        if (base == 1) return 1;
        if (base == -1) return exponent & 1 ? -1 : 1;
        return 0;
    }
    uint64_t result = 1, square = bits(base);
    for (uint64_t e = bits(exponent); e; e >>= 1) {
        if (e & 1) result *= square;
        square *= square;
    }
    return value(result);
}

bool less(bool is_unsigned, int64_t a, int64_t b) { return is_unsigned ? bits(a) < bits(b) : a < b; }

}  // namespace

void int_binary(ExprKind kind, DType t, Ints a, Ints b, int64_t n, int64_t* out) {
    const bool u = t == DType::u64;
    const int width = dtype_bits(t);
    switch (kind) {
        case ExprKind::Add:
            map2(a, b, n, out, [](int64_t x, int64_t y) { return value(bits(x) + bits(y)); });
            return wrap(t, n, out);
        case ExprKind::Sub:
            map2(a, b, n, out, [](int64_t x, int64_t y) { return value(bits(x) - bits(y)); });
            return wrap(t, n, out);
        case ExprKind::Mul:
            map2(a, b, n, out, [](int64_t x, int64_t y) { return value(bits(x) * bits(y)); });
            return wrap(t, n, out);
        case ExprKind::Div:
            if (u) return map2(a, b, n, out, [](int64_t x, int64_t y) { return y ? value(bits(x) / bits(y)) : 0; });
            map2(a, b, n, out, quotient);
            return wrap(t, n, out);
        case ExprKind::FloorDiv: return map2(a, b, n, out, floor_quotient);
        case ExprKind::Mod:
            if (u) return map2(a, b, n, out, [](int64_t x, int64_t y) { return y ? value(bits(x) % bits(y)) : 0; });
            return map2(a, b, n, out, floor_remainder);
        case ExprKind::Rem:
            if (u) return map2(a, b, n, out, [](int64_t x, int64_t y) { return y ? value(bits(x) % bits(y)) : 0; });
            return map2(a, b, n, out, remainder);
        case ExprKind::Min: return map2(a, b, n, out, [u](int64_t x, int64_t y) { return less(u, x, y) ? x : y; });
        case ExprKind::Max: return map2(a, b, n, out, [u](int64_t x, int64_t y) { return less(u, x, y) ? y : x; });
        case ExprKind::Pow:
            map2(a, b, n, out, [u](int64_t x, int64_t y) { return power(x, y, u); });
            return wrap(t, n, out);
        case ExprKind::BitAnd: return map2(a, b, n, out, [](int64_t x, int64_t y) { return x & y; });
        case ExprKind::BitOr: return map2(a, b, n, out, [](int64_t x, int64_t y) { return x | y; });
        case ExprKind::BitXor: return map2(a, b, n, out, [](int64_t x, int64_t y) { return x ^ y; });
        case ExprKind::Shl:
            map2(a, b, n, out, [width](int64_t x, int64_t y) {
                return bits(y) >= static_cast<uint64_t>(width) ? 0 : value(bits(x) << y);
            });
            return wrap(t, n, out);
        case ExprKind::Shr:
            return map2(a, b, n, out, [width, u](int64_t x, int64_t y) {
                if (bits(y) >= static_cast<uint64_t>(width)) return int64_t{0};
                return u ? value(bits(x) >> y) : x >> y;
            });
        case ExprKind::And: return map2(a, b, n, out, [](int64_t x, int64_t y) -> int64_t { return x & y; });
        case ExprKind::Or: return map2(a, b, n, out, [](int64_t x, int64_t y) -> int64_t { return x | y; });
        default: CHECK(false, "kind {} of integers", static_cast<int>(kind));
    }
}

void int_compare(ExprKind kind, DType t, Ints a, Ints b, int64_t n, int64_t* out) {
    const bool u = t == DType::u64;
    switch (kind) {
        case ExprKind::Lt: return map2(a, b, n, out, [u](int64_t x, int64_t y) -> int64_t { return less(u, x, y); });
        case ExprKind::Le: return map2(a, b, n, out, [u](int64_t x, int64_t y) -> int64_t { return !less(u, y, x); });
        case ExprKind::Eq: return map2(a, b, n, out, [](int64_t x, int64_t y) -> int64_t { return x == y; });
        case ExprKind::Ne: return map2(a, b, n, out, [](int64_t x, int64_t y) -> int64_t { return x != y; });
        default: CHECK(false, "comparison {}", static_cast<int>(kind));
    }
}

void int_unary(ExprKind kind, Fn fn, DType t, Ints a, int64_t n, int64_t* out) {
    const bool is_signed = is_signed_int(t);
    switch (kind) {
        case ExprKind::Neg: map1(a, n, out, [](int64_t x) { return value(0 - bits(x)); }); return wrap(t, n, out);
        case ExprKind::BitNot: map1(a, n, out, [](int64_t x) { return ~x; }); return wrap(t, n, out);
        case ExprKind::Not: return map1(a, n, out, [](int64_t x) -> int64_t { return !x; });
        default: break;
    }
    CHECK(kind == ExprKind::Call, "kind {} of an integer", static_cast<int>(kind));
    switch (fn) {
        case Fn::Abs:
            map1(a, n, out, [is_signed](int64_t x) { return is_signed && x < 0 ? value(0 - bits(x)) : x; });
            return wrap(t, n, out);
        case Fn::Sign:
            return map1(a, n, out, [is_signed](int64_t x) -> int64_t {
                return x == 0 ? 0 : is_signed && x < 0 ? -1 : 1;
            });
        case Fn::Floor:
        case Fn::Ceil:
        case Fn::Round:
        case Fn::Trunc: return map1(a, n, out, [](int64_t x) { return x; });
        case Fn::IsNan:
        case Fn::IsInf: return map1(a, n, out, [](int64_t) { return int64_t{0}; });
        default: break;
    }
    // Any other function of an integer: through a real, as a cast there and back.
    for (int64_t i = 0; i < n; ++i) {
        int64_t x = a.at[a.uniform ? 0 : i];
        double real = t == DType::u64 ? static_cast<double>(bits(x)) : static_cast<double>(x);
        real_call(fn, {&real, true}, {&real, true}, 1, &real);
        cast_real_to_int(t, false, {&real, true}, 1, out + i);
    }
}

void int_dot(Fn fn, Ints a, Ints b, int64_t n, int64_t* out) {
    auto byte = [](int64_t word, int i) { return static_cast<uint8_t>(bits(word) >> (8 * i)); };
    map2(a, b, n, out, [&](int64_t x, int64_t y) {
        int64_t sum = 0;
        for (int i = 0; i < 4; ++i) {
            const int64_t second = static_cast<int8_t>(byte(y, i));
            sum += second * (fn == Fn::DotU8I8 ? int64_t{byte(x, i)} : static_cast<int8_t>(byte(x, i)));
        }
        return sum;
    });
}

int64_t int_identity(ReduceOp op, DType t) {
    switch (op) {
        case ReduceOp::Sum: return 0;
        case ReduceOp::Prod: return 1;
        case ReduceOp::Min: return int_max(t);
        case ReduceOp::Max: return int_min(t);
    }
    return 0;
}

void accumulate(ReduceOp op, DType t, Ints v, int64_t n, int64_t* acc) {
    const ExprKind kinds[] = {ExprKind::Add, ExprKind::Mul, ExprKind::Min, ExprKind::Max};
    int_binary(kinds[static_cast<int>(op)], t, {acc, false}, v, n, acc);
}

int64_t combine(ReduceOp op, DType t, const int64_t* acc, int64_t n) {
    int64_t total = acc[0];
    for (int64_t i = 1; i < n; ++i) accumulate(op, t, {acc + i, true}, 1, &total);
    return total;
}

}  // namespace tessera::strip
