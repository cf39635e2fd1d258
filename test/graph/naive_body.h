// A body computed one element at a time, straight from the meaning of each node: the strip engine's oracle.
#pragma once

#include <cmath>
#include <map>
#include <stdexcept>

#include "base/numeric.h"
#include "expr/expr.h"
#include "graph/tensor.h"

namespace tessera {

struct OutOfBounds : std::runtime_error {
    OutOfBounds() : std::runtime_error("index out of bounds") {}
};

struct NaiveValue {
    double real = 0;
    int64_t integer = 0;
};

class NaiveBody {
  public:
    explicit NaiveBody(const std::vector<const Tensor*>& inputs) : inputs_(inputs) {}

    NaiveValue value(const Expr& e, std::map<std::string, int64_t>& vars) {
        const ExprNode& n = e.node();
        auto arg = [&](size_t i) { return value(n.args[i], vars); };
        const bool real = is_float(n.dtype);
        const DType from = n.args.empty() ? n.dtype : n.args[0].dtype();
        const bool from_real = is_float(from), u = from == DType::u64;
        switch (n.kind) {
            case ExprKind::Const: return {n.real, n.integer};
            case ExprKind::Var: return {0, vars.at(n.name)};
            case ExprKind::Load: {
                const Tensor& t = *inputs_[n.slot];
                int64_t offset = 0;
                for (size_t d = 0; d < n.args.size(); ++d) {
                    int64_t at = arg(d).integer;
                    if (at < 0 || at >= t.sizes()[d]) throw OutOfBounds();
                    offset = offset * t.sizes()[d] + at;
                }
                return real ? NaiveValue{t.real_at(offset), 0} : NaiveValue{0, t.int_at(offset)};
            }
            case ExprKind::Select: return arg(0).integer ? arg(1) : arg(2);
            case ExprKind::Reduce: return reduce(n, vars);
            case ExprKind::Cast:
            case ExprKind::CastSaturate: return cast(n, arg(0));
            case ExprKind::Call: return call(n, arg(0), n.args.size() > 1 ? arg(1) : NaiveValue{});
            case ExprKind::Neg:
                return real ? NaiveValue{-arg(0).real, 0}
                            : NaiveValue{0, int_wrap(n.dtype, int64_t(0 - uint64_t(arg(0).integer)))};
            case ExprKind::Not: return {0, !arg(0).integer};
            case ExprKind::BitNot: return {0, int_wrap(n.dtype, ~arg(0).integer)};
            default: break;
        }
        NaiveValue x = arg(0);
        for (size_t i = 1; i < n.args.size(); ++i) {
            NaiveValue y = arg(i);
            x = from_real ? NaiveValue{binary_real(n.kind, x.real, y.real), compare(n.kind, x.real, y.real)}
                          : NaiveValue{0, binary_int(n.kind, n.dtype, from, x.integer, y.integer, u)};
        }
        return x;
    }

  private:
    NaiveValue reduce(const ExprNode& n, std::map<std::string, int64_t> vars) {
        long double sum = 0;
        NaiveValue acc;
        const bool real = is_float(n.dtype);
        constexpr double kInf = std::numeric_limits<double>::infinity();
        switch (n.reduce_op) {
            case ReduceOp::Sum: acc = {0, 0}; break;
            case ReduceOp::Prod: acc = {1, 1}; break;
            case ReduceOp::Min: acc = {kInf, real ? 0 : int_max(n.dtype)}; break;
            case ReduceOp::Max: acc = {-kInf, real ? 0 : int_min(n.dtype)}; break;
        }
        std::vector<int64_t> at(n.axes.size(), 0);
        for (const ReduceAxis& a : n.axes)
            if (*a.extent.as_int() <= 0) return acc;
        while (true) {
            for (size_t i = 0; i < at.size(); ++i) vars[n.axes[i].var.node().name] = at[i];
            NaiveValue v = value(n.args[0], vars);
            switch (n.reduce_op) {
                case ReduceOp::Sum:
                    sum += v.real;
                    acc.integer = int_wrap(n.dtype, int64_t(uint64_t(acc.integer) + uint64_t(v.integer)));
                    break;
                case ReduceOp::Prod:
                    acc.real *= v.real;
                    acc.integer = real ? 0 : int_wrap(n.dtype, int64_t(uint64_t(acc.integer) * uint64_t(v.integer)));
                    break;
                case ReduceOp::Min:
                    acc.real = binary_real(ExprKind::Min, acc.real, v.real);
                    acc.integer =
                        binary_int(ExprKind::Min, n.dtype, n.dtype, acc.integer, v.integer, n.dtype == DType::u64);
                    break;
                case ReduceOp::Max:
                    acc.real = binary_real(ExprKind::Max, acc.real, v.real);
                    acc.integer =
                        binary_int(ExprKind::Max, n.dtype, n.dtype, acc.integer, v.integer, n.dtype == DType::u64);
                    break;
            }
            size_t d = at.size();
            while (d > 0 && ++at[d - 1] == *n.axes[d - 1].extent.as_int()) at[--d] = 0;
            if (d == 0) break;
        }
        if (n.reduce_op == ReduceOp::Sum) acc.real = static_cast<double>(sum);
        return acc;
    }

    static NaiveValue cast(const ExprNode& n, NaiveValue x) {
        const DType from = n.args[0].dtype(), to = n.dtype;
        const bool saturate = n.kind == ExprKind::CastSaturate;
        const Overflow overflow = saturate ? Overflow::Saturate : Overflow::Special;
        if (is_float(from) && is_float(to)) return {float_from_bits(to, float_to_bits(to, x.real, overflow)), 0};
        if (is_float(to)) {
            long double exact = from == DType::u64 ? (long double)uint64_t(x.integer) : (long double)x.integer;
            if (to == DType::f32) return {static_cast<float>(exact), 0};
            return {float_from_bits(to, float_to_bits(to, static_cast<double>(exact), overflow)), 0};
        }
        if (to == DType::boolean) return {0, is_float(from) ? x.real != 0 : x.integer != 0};
        if (is_float(from)) {
            double v = std::trunc(x.real);
            if (std::isnan(v)) return {0, 0};
            if (saturate && to != DType::u64 && to != DType::i64)
                v = std::min(std::max(v, double(int_min(to))), double(int_max(to)));
            if (saturate && to == DType::u64 && v < 0) v = 0;
            if (to == DType::u64 && v >= 0x1p63) return {0, v >= 0x1p64 ? -1 : int64_t(uint64_t(v))};
            int64_t i = v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : int64_t(v);
            return {0, int_wrap(to, i)};
        }
        if (!saturate) return {0, int_wrap(to, x.integer)};
        __int128 v = from == DType::u64 ? __int128(uint64_t(x.integer)) : __int128(x.integer);
        __int128 low = int_min(to), high = to == DType::u64 ? __int128(UINT64_MAX) : __int128(int_max(to));
        return {0, int64_t(std::min(std::max(v, low), high))};
    }

    static NaiveValue call(const ExprNode& n, NaiveValue x, NaiveValue y) {
        if (!is_float(n.args[0].dtype())) {
            bool s = is_signed_int(n.args[0].dtype());
            if (n.fn == Fn::Abs)
                return {0, int_wrap(n.dtype, s && x.integer < 0 ? int64_t(0 - uint64_t(x.integer)) : x.integer)};
            if (n.fn == Fn::Sign) return {0, x.integer == 0 ? 0 : s && x.integer < 0 ? -1 : 1};
            return x;
        }
        switch (n.fn) {
            case Fn::Abs: return {std::fabs(x.real), 0};
            case Fn::Sign: return {std::isnan(x.real) ? x.real : (x.real > 0) - (x.real < 0), 0};
            case Fn::Floor: return {std::floor(x.real), 0};
            case Fn::Round: return {std::nearbyint(x.real), 0};
            case Fn::Exp: return {std::exp(x.real), 0};
            case Fn::Tanh: return {std::tanh(x.real), 0};
            case Fn::Atan2: return {std::atan2(x.real, y.real), 0};
            case Fn::IsNan: return {0, std::isnan(x.real)};
            case Fn::IsInf: return {0, std::isinf(x.real)};
            default: throw std::logic_error("a function that the naive body does not know");
        }
    }

    static double binary_real(ExprKind k, double a, double b) {
        switch (k) {
            case ExprKind::Add: return a + b;
            case ExprKind::Sub: return a - b;
            case ExprKind::Mul: return a * b;
            case ExprKind::Div: return a / b;
            case ExprKind::Rem: return std::fmod(a, b);
            case ExprKind::Mod:
                return b == 0 || std::isinf(a) || std::isnan(a) ? std::nan("")
                       : std::isinf(b)                          ? ((a < 0) != (b < 0) && a != 0 ? b : a)
                                                                : a - b * std::floor(a / b);
            case ExprKind::Min: return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b);
            case ExprKind::Max: return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
            case ExprKind::Pow: return std::pow(a, b);
            default: return 0;
        }
    }
    static int64_t compare(ExprKind k, double a, double b) {
        switch (k) {
            case ExprKind::Lt: return a < b;
            case ExprKind::Le: return a <= b;
            case ExprKind::Eq: return a == b;
            case ExprKind::Ne: return a != b;
            default: return 0;
        }
    }
    // In 128 bits, where nothing overflows; then taken to the type.
    static int64_t binary_int(ExprKind k, DType to, DType from, int64_t x, int64_t y, bool u) {
        __int128 a = u ? __int128(uint64_t(x)) : __int128(x), b = u ? __int128(uint64_t(y)) : __int128(y);
        auto wrapped = [&](__int128 v) { return int_wrap(to, int64_t(uint64_t(v))); };
        const int bits = dtype_bits(from);
        switch (k) {
            case ExprKind::Add: return wrapped(a + b);
            case ExprKind::Sub: return wrapped(a - b);
            case ExprKind::Mul: return wrapped(__int128((unsigned __int128)a * (unsigned __int128)b));
            case ExprKind::Div: return b == 0 ? 0 : wrapped(a / b);
            case ExprKind::Rem: return b == 0 ? 0 : wrapped(a % b);
            case ExprKind::Mod: return b == 0 ? 0 : wrapped(((a % b) + b) % b);
            case ExprKind::FloorDiv: return b == 0 ? 0 : wrapped((a - ((a % b) + b) % b) / b);
            case ExprKind::Min: return wrapped(a < b ? a : b);
            case ExprKind::Max: return wrapped(a > b ? a : b);
            case ExprKind::Pow: {
                if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
                uint64_t p = 1;
                for (__int128 i = 0; i < b % 64; ++i) p *= uint64_t(a);
                return wrapped(p);
            }
            case ExprKind::BitAnd: return wrapped(a & b);
            case ExprKind::BitOr: return wrapped(a | b);
            case ExprKind::BitXor: return wrapped(a ^ b);
            case ExprKind::Shl: return b < 0 || b >= bits ? 0 : wrapped(__int128((unsigned __int128)a << int(b)));
            case ExprKind::Shr: return b < 0 || b >= bits ? 0 : wrapped(a >> int(b));
            case ExprKind::And: return a && b;
            case ExprKind::Or: return a || b;
            case ExprKind::Lt: return a < b;
            case ExprKind::Le: return a <= b;
            case ExprKind::Eq: return a == b;
            case ExprKind::Ne: return a != b;
            default: throw std::logic_error("a kind that the naive body does not know");
        }
    }

    const std::vector<const Tensor*>& inputs_;
};

}  // namespace tessera
