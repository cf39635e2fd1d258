#include <algorithm>

#include "expr/simplify.h"

namespace tessera {
namespace {

using Limit = std::optional<int64_t>;

// One end of an interval: a number, or infinite with a sign.
struct End {
    int64_t value = 0;
    int infinite = 0;
};
End low_end(const Bounds& b) { return b.low ? End{*b.low, 0} : End{0, -1}; }
End high_end(const Bounds& b) { return b.high ? End{*b.high, 0} : End{0, 1}; }
int sign(const End& e) { return e.infinite ? e.infinite : (e.value > 0) - (e.value < 0); }
Limit finite(const End& e) { return e.infinite ? std::nullopt : Limit(e.value); }

bool less(const End& a, const End& b) {
    if (a.infinite != b.infinite) return a.infinite < b.infinite;
    return !a.infinite && a.value < b.value;
}

End times(const End& a, const End& b) {
    int s = sign(a) * sign(b);
    if (s == 0) return {};
    if (a.infinite || b.infinite) return {0, s};
    std::optional<int64_t> p = checked_mul(a.value, b.value);
    return p ? End{*p, 0} : End{0, s};
}

Bounds multiply(const Bounds& a, const Bounds& b) {
    End all[] = {times(low_end(a), low_end(b)), times(low_end(a), high_end(b)), times(high_end(a), low_end(b)),
                 times(high_end(a), high_end(b))};
    auto [lowest, highest] = std::minmax_element(std::begin(all), std::end(all), less);
    return {finite(*lowest), finite(*highest)};
}

Bounds add(const Bounds& a, const Bounds& b) {
    Bounds r;
    if (a.low && b.low) r.low = checked_add(*a.low, *b.low);
    if (a.high && b.high) r.high = checked_add(*a.high, *b.high);
    return r;
}

Bounds unite(const Bounds& a, const Bounds& b) {
    Bounds r;
    if (a.low && b.low) r.low = std::min(*a.low, *b.low);
    if (a.high && b.high) r.high = std::max(*a.high, *b.high);
    return r;
}

Limit smaller(Limit a, Limit b) { return a && b ? std::min(*a, *b) : a ? a : b; }
Limit larger(Limit a, Limit b) { return a && b ? std::max(*a, *b) : a ? a : b; }

bool at_least(const Limit& limit, int64_t value) { return limit && *limit >= value; }

Bounds floor_divide(const Bounds& a, const Bounds& b) {
    Bounds r;
    if (!at_least(b.low, 0)) return r;
    // The quotient is nearest to 0 for the largest divisor, farthest for the smallest (0 gives 0).
    int64_t smallest = std::max<int64_t>(*b.low, 1);
    if (a.low) {
        if (*a.low < 0)
            r.low = floor_quotient(*a.low, smallest);
        else
            r.low = b.high && *b.low > 0 ? floor_quotient(*a.low, *b.high) : 0;
    }
    if (a.high) r.high = *a.high >= 0 ? floor_quotient(*a.high, smallest) : *b.low > 0 ? -1 : 0;
    if (a.high && *a.high < 0 && b.high && *b.low > 0) r.high = floor_quotient(*a.high, *b.high);
    return r;
}

Bounds modulo(const Bounds& a, const Bounds& b) {
    if (at_least(b.low, 0)) {
        Limit high = b.high ? Limit(std::max<int64_t>(*b.high - 1, 0)) : std::nullopt;
        return {0, at_least(a.low, 0) ? smaller(high, a.high) : high};
    }
    if (b.low && *b.low > INT64_MIN && b.high && *b.high <= 0) return {*b.low + 1, 0};
    return {};
}

Bounds range_of(DType t) {
    if (t == DType::boolean) return {0, 1};
    if (!is_int(t) || dtype_bits(t) >= 64) return {};
    int bits = dtype_bits(t);
    if (is_unsigned_int(t)) return {0, (int64_t{1} << bits) - 1};
    return {-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
}

Bounds of_call(const ExprNode& node) {
    Bounds x = bounds(node.args[0]);
    if (node.fn == Fn::Sign) return {at_least(x.low, 0) ? 0 : -1, x.high && *x.high <= 0 ? 0 : 1};
    if (node.fn != Fn::Abs || !x.low || *x.low == INT64_MIN) return {};
    if (*x.low >= 0) return x;
    return {0, x.high ? Limit(std::max(-*x.low, *x.high)) : std::nullopt};
}

// Wrapping arithmetic keeps its bounds only where neither end can overflow.
Bounds unless_wrapping(const ExprNode& node, Bounds b) {
    if (node.reads && (!b.low || !b.high)) return {};
    return b;
}

}  // namespace

Bounds bounds(const Expr& e) { return {e.node().low, e.node().high}; }

Bounds node_bounds(const ExprNode& node) {
    if (node.dtype != DType::i64) return {};
    const std::vector<Expr>& args = node.args;
    switch (node.kind) {
        case ExprKind::Const: return {node.integer, node.integer};
        case ExprKind::Var: return {node.low, node.high};
        case ExprKind::Add: {
            Bounds sum = bounds(args[0]);
            for (size_t i = 1; i < args.size(); ++i) sum = unless_wrapping(node, add(sum, bounds(args[i])));
            return sum;
        }
        case ExprKind::Mul: {
            Bounds product = bounds(args[0]);
            for (size_t i = 1; i < args.size(); ++i)
                product = unless_wrapping(node, multiply(product, bounds(args[i])));
            return product;
        }
        case ExprKind::FloorDiv: return floor_divide(bounds(args[0]), bounds(args[1]));
        case ExprKind::Mod: return modulo(bounds(args[0]), bounds(args[1]));
        case ExprKind::Div: {
            Bounds a = bounds(args[0]), b = bounds(args[1]);
            return at_least(a.low, 0) ? floor_divide(a, b) : Bounds{};
        }
        case ExprKind::Rem: {
            Bounds a = bounds(args[0]), b = bounds(args[1]);
            return at_least(a.low, 0) && at_least(b.low, 0) ? modulo(a, b) : Bounds{};
        }
        case ExprKind::Min:
        case ExprKind::Max: {
            Bounds r = bounds(args[0]);
            for (size_t i = 1; i < args.size(); ++i) {
                Bounds b = bounds(args[i]), both = unite(r, b);
                r = node.kind == ExprKind::Min ? Bounds{both.low, smaller(r.high, b.high)}
                                               : Bounds{larger(r.low, b.low), both.high};
            }
            return r;
        }
        case ExprKind::Select: return unite(bounds(args[1]), bounds(args[2]));
        case ExprKind::Cast: return range_of(args[0].dtype());
        case ExprKind::Call: return of_call(node);
        default: return {};
    }
}

}  // namespace tessera
