#include <algorithm>

#include "base/gcd.h"
#include "expr/simplify.h"

namespace tessera {
namespace {

constexpr size_t kMaxCompared = 8;  // operands of a min or max beyond which pairs are not compared

bool is_atom(const Expr& e) { return !e.is(ExprKind::Add) && !e.is(ExprKind::Mul); }

// Whether a <= b for every value of the variables.
bool always_le(const Expr& a, const Expr& b) {
    Bounds x = bounds(a), y = bounds(b);
    if (x.high && y.low && *x.high <= *y.low) return true;
    if (a.node().reads || b.node().reads || a.is(ExprKind::Const) || b.is(ExprKind::Const)) return false;
    Bounds difference = bounds(b - a);
    return difference.low && *difference.low >= 0;
}

// A difference in parts: positive - negative + constant. Empty where constants would not fold.
struct Difference {
    std::vector<Expr> positive, negative;
    int64_t constant = 0;
    int64_t common_divisor = 0;
};
std::optional<Difference> split(const Expr& e) {
    Difference d;
    int constants = 0;
    for (const Expr& term : terms_of(e)) {
        Monomial m = as_monomial(term);
        if (m.count == 0) {
            d.constant = m.coefficient;
            if (++constants > 1) return std::nullopt;
            continue;
        }
        if (m.coefficient == INT64_MIN || m.coefficient == 0 || m.atoms[0].as_int()) return std::nullopt;
        if (m.coefficient == -1 && m.count == 1 && m.atoms[0].is(ExprKind::Add)) return std::nullopt;
        d.common_divisor = gcd_of(d.common_divisor, m.coefficient);
    }
    for (const Expr& term : terms_of(e)) {
        Monomial m = as_monomial(term);
        if (m.count == 0) continue;
        int64_t c = m.coefficient / d.common_divisor;
        if (c > 0)
            d.positive.push_back(d.common_divisor == 1 ? term : make_term(c, m.atoms, m.count));
        else
            d.negative.push_back(make_term(-c, m.atoms, m.count));
    }
    return d;
}

// b - a in parts, where one of them is a constant.
std::optional<Difference> split_from_constant(const Expr& a, const Expr& b) {
    std::optional<int64_t> x = a.as_int(), y = b.as_int();
    std::optional<Difference> d = split(x ? b : a);
    if (!d) return d;
    std::optional<int64_t> constant =
        x ? fold_int(ExprKind::Sub, d->constant, *x) : fold_int(ExprKind::Sub, *y, d->constant);
    if (!constant) return std::nullopt;
    d->constant = *constant;
    if (y) std::swap(d->positive, d->negative);
    return d;
}

Expr with_constant(const std::vector<Expr>& terms, int64_t constant) {
    std::vector<Expr> all = terms;
    all.emplace_back(constant);
    return make_sum(std::move(all));
}

Expr raw_bool(ExprKind kind, const Expr& a, const Expr& b) { return make_node(kind, DType::boolean, {a, b}); }

// Once divided, terms may come together and call for another look.
Expr divided(ExprKind kind, const Expr& a, const Expr& b, int64_t divisor) {
    return divisor == 1 ? raw_bool(kind, a, b) : simplify_compare(kind, a, b);
}

// positive + constant > negative, in one form for each meaning.
Expr positive_difference(const Difference& d, int64_t constant) {
    // g*x + k > 0 is x + 1 + floor((k - 1) / g) > 0.
    int64_t g = d.common_divisor;
    if (g > 1) constant = 1 + floor_quotient(constant - 1, g);
    ExprKind kind = constant == 1 ? ExprKind::Le : ExprKind::Lt;
    if (constant == 1) constant = 0;
    if (d.negative.empty()) return divided(kind, -constant, with_constant(d.positive, 0), g);
    if (d.positive.empty() || constant >= 0)
        return divided(kind, with_constant(d.negative, 0), with_constant(d.positive, constant), g);
    return divided(kind, with_constant(d.negative, -constant), with_constant(d.positive, 0), g);
}

Expr less(const Expr& a, const Expr& b) {
    if (a.same(b)) return make_bool(false);
    Bounds x = bounds(a), y = bounds(b);
    if (x.high && y.low && *x.high < *y.low) return make_bool(true);
    if (x.low && y.high && *x.low >= *y.high) return make_bool(false);
    if (a.node().reads || b.node().reads) return raw_bool(ExprKind::Lt, a, b);
    if (is_atom(a) && is_atom(b)) {
        if (b.is_int(1)) return raw_bool(ExprKind::Le, a, 0);
        if (a.is_int(-1)) return raw_bool(ExprKind::Le, 0, b);
        return raw_bool(ExprKind::Lt, a, b);
    }
    std::optional<Difference> parts;
    if (a.is(ExprKind::Const) || b.is(ExprKind::Const)) {
        parts = split_from_constant(a, b);
    } else {
        Expr difference = b - a;
        Bounds d = bounds(difference);
        if (d.low && *d.low >= 1) return make_bool(true);
        if (d.high && *d.high <= 0) return make_bool(false);
        parts = split(difference);
    }
    if (!parts || parts->constant == INT64_MIN) return raw_bool(ExprKind::Lt, a, b);
    return positive_difference(*parts, parts->constant);
}

Expr less_or_equal(const Expr& a, const Expr& b) {
    if (a.same(b)) return make_bool(true);
    Bounds x = bounds(a), y = bounds(b);
    if (x.high && y.low && *x.high <= *y.low) return make_bool(true);
    if (x.low && y.high && *x.low > *y.high) return make_bool(false);
    if (a.node().reads || b.node().reads) return raw_bool(ExprKind::Le, a, b);
    if (is_atom(a) && is_atom(b) && !a.is(ExprKind::Const) && !b.is(ExprKind::Const)) return raw_bool(ExprKind::Le, a, b);
    std::optional<Difference> parts;
    if (a.is(ExprKind::Const) || b.is(ExprKind::Const)) {
        parts = split_from_constant(a, b);
    } else {
        Expr difference = b - a;
        Bounds d = bounds(difference);
        if (d.low && *d.low >= 0) return make_bool(true);
        if (d.high && *d.high < 0) return make_bool(false);
        parts = split(difference);
    }
    if (!parts || parts->constant == INT64_MAX || parts->constant == INT64_MIN) return raw_bool(ExprKind::Le, a, b);
    return positive_difference(*parts, parts->constant + 1);
}

Expr equal(ExprKind kind, const Expr& a, const Expr& b) {
    bool equal_value = kind == ExprKind::Eq;
    if (a.same(b)) return make_bool(equal_value);
    Bounds x = bounds(a), y = bounds(b);
    if ((x.high && y.low && *x.high < *y.low) || (x.low && y.high && *x.low > *y.high)) return make_bool(!equal_value);
    if (a.is(ExprKind::Const) && is_atom(b)) return raw_bool(kind, b, a);
    if ((b.is(ExprKind::Const) && is_atom(a)) || a.node().reads || b.node().reads) return raw_bool(kind, a, b);
    if (is_atom(a) && is_atom(b)) return compare_structure(a, b) < 0 ? raw_bool(kind, a, b) : raw_bool(kind, b, a);
    Expr difference = a - b;
    std::optional<Difference> parts = split(difference);
    if (!parts) {  // the other way round coefficients may not overflow
        difference = b - a;
        parts = split(difference);
    }
    Bounds d = bounds(difference);
    if ((d.low && *d.low > 0) || (d.high && *d.high < 0)) return make_bool(!equal_value);
    if (difference.is_int(0)) return make_bool(equal_value);
    if (!parts || parts->constant == INT64_MIN) return raw_bool(kind, a, b);
    if (parts->constant % parts->common_divisor != 0) return make_bool(!equal_value);
    // The first term is positive, and the constant stands on the right.
    int64_t constant = parts->constant / parts->common_divisor;
    if (as_monomial(*terms_of(difference).begin()).coefficient < 0) {
        std::swap(parts->positive, parts->negative);
        constant = -constant;
    }
    return divided(kind, with_constant(parts->positive, 0), with_constant(parts->negative, -constant),
                   parts->common_divisor);
}

}  // namespace

Expr simplify_min_max(ExprKind kind, const Expr& a, const Expr& b) {
    if (a.same(b)) return a;
    std::optional<int64_t> x = a.as_int(), y = b.as_int();
    if (x && y) return *fold_int(kind, *x, *y);
    // Whether p makes q redundant.
    auto wins = [&](const Expr& p, const Expr& q) {
        if (kind == ExprKind::Min ? always_le(p, q) : always_le(q, p)) return true;
        ExprKind other = kind == ExprKind::Min ? ExprKind::Max : ExprKind::Min;
        return q.is(other) && std::any_of(q.args().begin(), q.args().end(), [&](const Expr& e) { return e.same(p); });
    };
    std::vector<Expr> kept;
    auto add = [&](Expr e) {
        if (std::optional<int64_t> value = e.as_int()) {
            auto other = std::find_if(kept.begin(), kept.end(), [](const Expr& k) { return k.as_int().has_value(); });
            if (other != kept.end()) {
                e = *fold_int(kind, *value, *other->as_int());
                kept.erase(other);
            }
        }
        bool compare = kept.size() < kMaxCompared;
        for (const Expr& k : kept)
            if (k.same(e) || (compare && wins(k, e))) return;
        if (compare) std::erase_if(kept, [&](const Expr& k) { return wins(e, k); });
        kept.push_back(std::move(e));
    };
    for (const Expr* side : {&a, &b}) {
        if (!side->is(kind))
            add(*side);
        else
            for (const Expr& e : side->args()) add(e);
    }
    if (kept.size() == 1) return kept[0];
    std::sort(kept.begin(), kept.end(), [](const Expr& p, const Expr& q) {
        bool p_constant = p.is(ExprKind::Const), q_constant = q.is(ExprKind::Const);
        if (p_constant != q_constant) return q_constant;
        return compare_structure(p, q) < 0;
    });
    return make_node(kind, DType::i64, std::move(kept));
}

Expr simplify_compare(ExprKind kind, const Expr& a, const Expr& b) {
    std::optional<int64_t> x = a.as_int(), y = b.as_int();
    if (x && y) return make_bool(*fold_int(kind, *x, *y) != 0);
    if (kind == ExprKind::Lt) return less(a, b);
    if (kind == ExprKind::Le) return less_or_equal(a, b);
    return equal(kind, a, b);
}

}  // namespace tessera
