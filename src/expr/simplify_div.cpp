#include "base/gcd.h"
#include "expr/divide_within.h"
#include "expr/index_bound.h"
#include "expr/simplify.h"

namespace tessera {
namespace {

bool nonzero(const Expr& e) {
    Bounds b = bounds(e);
    return (b.low && *b.low >= 1) || (b.high && *b.high <= -1);
}

// 0 <= a < b
bool in_range(const Expr& a, const Expr& b) {
    Bounds of_a = bounds(a), of_b = bounds(b);
    if (!of_a.low || *of_a.low < 0) return false;
    if (of_a.high && of_b.low && *of_a.high < *of_b.low) return true;
    if (a.node().reads || b.node().reads || b.is(ExprKind::Const)) return false;
    Bounds difference = bounds(b - a);
    return difference.low && *difference.low >= 1;
}

// The quotient that all of e's values have, where its bounds give one.
std::optional<int64_t> common_quotient(const Expr& e, int64_t divisor) {
    Bounds b = bounds(e);
    if (!b.low || !b.high) return std::nullopt;
    int64_t low = floor_quotient(*b.low, divisor), high = floor_quotient(*b.high, divisor);
    if (low != high) return std::nullopt;
    return low;
}

// term / divisor where the divisor's atoms are among the term's and its coefficient divides.
std::optional<Expr> exact_quotient(const Monomial& term, const Monomial& divisor) {
    if (divisor.coefficient == 0 || divisor.coefficient == -1 || term.coefficient % divisor.coefficient != 0)
        return std::nullopt;
    std::vector<Expr> left;
    size_t matched = 0;
    for (size_t i = 0; i < term.count; ++i) {
        if (matched < divisor.count && term.atoms[i].same(divisor.atoms[matched]))
            ++matched;
        else
            left.push_back(term.atoms[i]);
    }
    if (matched != divisor.count) return std::nullopt;
    return make_term(term.coefficient / divisor.coefficient, left.data(), left.size());
}

// A sum's terms with a factor, and its one constant.
struct Linear {
    std::vector<Expr> terms;
    int64_t constant = 0;

    int64_t common_divisor(int64_t with) const {
        int64_t g = with;
        for (const Expr& t : terms) {
            int64_t c = as_monomial(t).coefficient;
            g = gcd_of(g, c % g);
        }
        return g;
    }
    void divide_by(int64_t g) {
        for (Expr& t : terms) {
            Monomial m = as_monomial(t);
            t = make_term(m.coefficient / g, m.atoms, m.count);
        }
        constant = floor_quotient(constant, g);
    }
    // Whether terms came together or apart in `sum`, once divided.
    bool changes_in(const Expr& sum) const { return terms_of(sum).size() != terms.size() + (constant != 0); }
    Expr sum() const {
        std::vector<Expr> all = terms;
        all.emplace_back(constant);
        return make_sum(std::move(all));
    }
};

// A sum of multiples of g, which divides the divisor, and of what lies in [0, g): only the multiples count in the
// quotient.
struct Fine {
    int64_t g;
    Expr multiples;  // divided by g
    Expr small;
};
std::optional<Fine> part_small(const Linear& sum, int64_t divisor) {
    for (const Expr& term : sum.terms) {
        const int64_t g = gcd_of(as_monomial(term).coefficient, divisor);
        if (g == 1) continue;
        Linear multiples;
        std::vector<Expr> small{floor_remainder(sum.constant, g)};
        for (const Expr& t : sum.terms) (as_monomial(t).coefficient % g ? small : multiples.terms).push_back(t);
        if (small.size() == 1) continue;
        Expr rest = make_sum(std::move(small));
        if (common_quotient(rest, g) != 0) continue;
        multiples.constant = sum.constant - floor_remainder(sum.constant, g);
        multiples.divide_by(g);
        return Fine{g, multiples.sum(), std::move(rest)};
    }
    return std::nullopt;
}

bool has_unfolded_constants(const Expr& e) {
    int constants = 0;
    for (const Expr& t : terms_of(e)) {
        Monomial m = as_monomial(t);
        constants += m.count == 0;
        if (m.count > 0 && m.atoms[0].as_int()) return true;
    }
    return constants > 1;
}

Expr raw(ExprKind kind, const Expr& a, const Expr& b) { return make_node(kind, DType::i64, {a, b}); }

Expr floor_div_by_constant(const Expr& a, int64_t divisor) {
    if (std::optional<int64_t> q = common_quotient(a, divisor)) return *q;
    if (a.node().reads || has_unfolded_constants(a)) return raw(ExprKind::FloorDiv, a, divisor);
    std::vector<Expr> whole;
    Linear rest;
    for (const Expr& term : terms_of(a)) {
        Monomial m = as_monomial(term);
        if (m.count == 0) {
            whole.emplace_back(floor_quotient(m.coefficient, divisor));
            rest.constant = floor_remainder(m.coefficient, divisor);
        } else if (m.coefficient % divisor == 0) {
            whole.push_back(make_term(m.coefficient / divisor, m.atoms, m.count));
        } else {
            rest.terms.push_back(term);
        }
    }
    if (rest.terms.empty()) return make_sum(std::move(whole));
    if (int64_t g = rest.common_divisor(divisor); g > 1) {
        rest.divide_by(g);
        divisor /= g;
    }
    // floor((max(n, 0) + c) / d) is max(floor((n + c) / d), 0), where c is less than d.
    if (const Expr n = rest.terms.size() == 1 ? index_bound(rest.terms[0]) : Expr(0);
        rest.terms.size() == 1 && !n.same(rest.terms[0])) {
        whole.push_back(simplify_min_max(ExprKind::Max, simplify_floor_div(n + rest.constant, divisor), 0));
        return make_sum(std::move(whole));
    }
    Expr quotient;
    Expr dividend = rest.sum();
    if (std::optional<int64_t> q = common_quotient(dividend, divisor)) {
        quotient = *q;
    } else if (rest.changes_in(dividend)) {
        quotient = simplify_floor_div(dividend, divisor);
    } else if (std::optional<Fine> fine = part_small(rest, divisor)) {
        quotient = simplify_floor_div(fine->multiples, divisor / fine->g);
    } else {
        quotient = raw(ExprKind::FloorDiv, dividend, divisor);
        // floordiv(floordiv(x, d) + r, c) is floordiv(x + r*d, c*d).
        const Expr& inner = rest.terms[0];
        if (rest.terms.size() == 1 && inner.is(ExprKind::FloorDiv)) {
            std::optional<int64_t> d = inner.arg(1).as_int();
            if (d && *d > 0) {
                std::optional<int64_t> offset = checked_mul(rest.constant, *d), product = checked_mul(divisor, *d);
                if (offset && product) quotient = simplify_floor_div(inner.arg(0) + *offset, *product);
            }
        }
    }
    if (whole.empty()) return quotient;
    return simplify_add(make_sum(std::move(whole)), quotient);
}

Expr mod_by_constant(const Expr& a, int64_t divisor) {
    if (std::optional<int64_t> q = common_quotient(a, divisor))
        if (std::optional<int64_t> offset = checked_mul(*q, divisor)) return a - Expr(*offset);
    if (a.node().reads || has_unfolded_constants(a)) return raw(ExprKind::Mod, a, divisor);
    Linear rest;
    std::vector<Expr> added;
    for (const Expr& term : terms_of(a)) {
        Monomial m = as_monomial(term);
        int64_t c = m.coefficient % divisor;
        if (m.count == 0) {
            rest.constant = floor_remainder(m.coefficient, divisor);
        } else if (c != 0) {
            // mod(x, d) is x, up to multiples of d.
            if (m.count == 1 && m.atoms[0].is(ExprKind::Mod)) {
                std::optional<int64_t> d = m.atoms[0].arg(1).as_int();
                std::optional<int64_t> step = d ? checked_mul(c, *d) : std::nullopt;
                if (step && *d != 0 && *step % divisor == 0) {
                    added.push_back(simplify_mul(c, m.atoms[0].arg(0)));
                    continue;
                }
            }
            Expr reduced = c == m.coefficient ? term : make_term(c, m.atoms, m.count);
            (reduced.is(ExprKind::Add) ? added : rest.terms).push_back(std::move(reduced));
        }
    }
    if (!added.empty()) {
        Expr sum = rest.sum();
        for (const Expr& e : added) sum = sum + e;
        return mod_by_constant(sum, divisor);
    }
    if (rest.terms.empty()) return rest.constant;
    int64_t g = rest.common_divisor(divisor);
    int64_t low_part = floor_remainder(rest.constant, g);
    if (g > 1) {
        rest.divide_by(g);
        divisor /= g;
    }
    Expr dividend = rest.sum();
    Expr remainder = raw(ExprKind::Mod, dividend, divisor);
    if (std::optional<int64_t> q = common_quotient(dividend, divisor))
        if (std::optional<int64_t> offset = checked_mul(*q, divisor)) remainder = dividend - Expr(*offset);
    if (rest.changes_in(dividend)) {
        remainder = simplify_mod(dividend, divisor);
    } else if (remainder.is(ExprKind::Mod)) {
        if (std::optional<Fine> fine = part_small(rest, divisor))
            remainder = simplify_mul(fine->g, simplify_mod(fine->multiples, divisor / fine->g)) + fine->small;
    }
    if (g == 1) return remainder;
    return simplify_add(simplify_mul(g, remainder), low_part);
}

// Splits a into terms that b divides, already divided, and the others.
struct Parts {
    std::vector<Expr> quotient, rest;
};
Parts divide_terms(const Expr& a, const Expr& b) {
    Parts parts;
    Monomial divisor = as_monomial(b);
    for (const Expr& term : terms_of(a)) {
        if (std::optional<Expr> q = exact_quotient(as_monomial(term), divisor))
            parts.quotient.push_back(std::move(*q));
        else
            parts.rest.push_back(term);
    }
    return parts;
}

// a = quotient * b + rest, as polynomials, where the rest is 0 or lies in [0, b).
struct Division {
    Expr quotient, rest;
};
std::optional<Division> divide_polynomials(const Expr& a, const Expr& b) {
    constexpr int kMaxSteps = 64;
    Division d{0, a};
    for (int step = 0; step < kMaxSteps; ++step) {
        std::optional<Expr> q = exact_quotient(as_monomial(*terms_of(d.rest).begin()), as_monomial(b.arg(0)));
        if (!q) break;
        d.quotient = d.quotient + *q;
        d.rest = d.rest - *q * b;
        if (d.rest.is_int(0)) return d;
    }
    if (d.quotient.is_int(0) || !in_range(d.rest, b)) return std::nullopt;
    return d;
}

}  // namespace

Expr simplify_floor_div(const Expr& a, const Expr& b) {
    std::optional<int64_t> x = a.as_int(), y = b.as_int();
    if (x == 0 || y == 0) return 0;
    if (y == 1) return a;
    if (x && y)
        if (std::optional<int64_t> value = fold_int(ExprKind::FloorDiv, *x, *y)) return *value;
    if (y) {
        if (*y > 0) return floor_div_by_constant(a, *y);
        if (a.node().reads || *y == INT64_MIN || x) return raw(ExprKind::FloorDiv, a, b);
        return simplify_floor_div(-a, -*y);
    }
    if (in_range(a, b)) return 0;
    if (!nonzero(b)) return raw(ExprKind::FloorDiv, a, b);
    if (a.same(b)) return 1;
    if (a.node().reads || b.node().reads) return raw(ExprKind::FloorDiv, a, b);
    if (b.is(ExprKind::Add)) {
        std::optional<Division> d = divide_polynomials(a, b);
        return d ? d->quotient : raw(ExprKind::FloorDiv, a, b);
    }
    Parts parts = divide_terms(a, b);
    if (parts.quotient.empty()) return raw(ExprKind::FloorDiv, a, b);
    return simplify_add(make_sum(std::move(parts.quotient)), simplify_floor_div(make_sum(std::move(parts.rest)), b));
}

Expr simplify_mod(const Expr& a, const Expr& b) {
    std::optional<int64_t> x = a.as_int(), y = b.as_int();
    if (x == 0 || y == 0 || y == 1 || y == -1 || a.same(b)) return 0;
    if (x && y)
        if (std::optional<int64_t> value = fold_int(ExprKind::Mod, *x, *y)) return *value;
    if (y) return *y > 0 ? mod_by_constant(a, *y) : raw(ExprKind::Mod, a, b);
    if (in_range(a, b)) return a;
    if (a.node().reads || b.node().reads) return raw(ExprKind::Mod, a, b);
    if (b.is(ExprKind::Add)) {
        std::optional<Division> d = divide_polynomials(a, b);
        return d ? d->rest : raw(ExprKind::Mod, a, b);
    }
    Parts parts = divide_terms(a, b);
    if (parts.quotient.empty()) return raw(ExprKind::Mod, a, b);
    return simplify_mod(make_sum(std::move(parts.rest)), b);
}

namespace {

// 0 <= e < size, by the extents of axes. Only sums of products of variables are looked into: they grow with each.
bool below(const Expr& e, const Expr& size, const std::vector<ReduceAxis>& axes) {
    if (e.node().reads || size.node().reads) return false;
    for (const Expr& term : terms_of(e)) {
        const Monomial m = as_monomial(term);
        if (m.coefficient < 0) return false;
        for (size_t i = 0; i < m.count; ++i)
            if (!m.atoms[i].is(ExprKind::Var) || bounds(m.atoms[i]).low.value_or(-1) < 0) return false;
    }
    Bindings last;
    for (const ReduceAxis& axis : axes) last.emplace(axis.var.node().name, axis.extent - 1);
    return bounds(size - substitute(e, last)).low.value_or(0) >= 1;
}

}  // namespace

Expr divide_within(const Expr& e, const std::vector<ReduceAxis>& axes) {
    auto divided = [](const Expr& x) {
        return (x.is(ExprKind::FloorDiv) || x.is(ExprKind::Mod)) && x.dtype() == DType::i64 && !x.arg(1).as_int();
    };
    bool any = false;
    visit(e, [&](const Expr& x) { any |= divided(x); });
    if (!any) return e;
    return rewrite(e, [&](const Expr& x) -> Expr {
        if (!divided(x) || x.node().reads) return x;
        Parts parts = divide_terms(x.arg(0), x.arg(1));
        const Expr rest = make_sum(std::move(parts.rest));
        if (!below(rest, x.arg(1), axes)) return x;
        return x.is(ExprKind::Mod) ? rest : make_sum(std::move(parts.quotient));
    });
}

}  // namespace tessera
