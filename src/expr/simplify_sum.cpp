#include <algorithm>
#include <numeric>

#include "expr/simplify.h"

namespace tessera {
namespace {

constexpr size_t kMaxExpandedTerms = 64;

Monomial as_atom(const Expr& e) { return {1, &e, 1}; }

int compare_monomials(const Monomial& x, const Monomial& y) {
    if (x.count != y.count) return x.count > y.count ? -1 : 1;
    for (size_t i = 0; i < x.count; ++i)
        if (int c = compare_structure(x.atoms[i], y.atoms[i])) return c;
    return 0;
}

bool same_monomial(const Monomial& x, const Monomial& y) {
    if (x.count != y.count) return false;
    for (size_t i = 0; i < x.count; ++i)
        if (!x.atoms[i].same(y.atoms[i])) return false;
    return true;
}

bool before(const Expr& a, const Expr& b) {
    Monomial x = as_monomial(a), y = as_monomial(b);
    int c = compare_monomials(x, y);
    return c != 0 ? c < 0 : x.coefficient > y.coefficient;
}

// Appends a term that comes after all of those in `sum`, or belongs to its last ones.
void append_term(std::vector<Expr>& sum, Expr term) {
    size_t place = sum.size();
    while (!sum.empty()) {
        Monomial x = as_monomial(sum.back()), y = as_monomial(term);
        if (!same_monomial(x, y)) break;
        std::optional<int64_t> coefficient = checked_add(x.coefficient, y.coefficient);
        if (!coefficient) {  // both stay, the larger first
            if (y.coefficient > x.coefficient) place = sum.size() - 1;
            break;
        }
        Expr merged = make_term(*coefficient, x.atoms, x.count);
        sum.pop_back();
        if (*coefficient == 0) return;
        term = std::move(merged);
        place = sum.size();
    }
    if (!term.is_int(0)) sum.insert(sum.begin() + static_cast<ptrdiff_t>(place), std::move(term));
}

// The one quotient by `divisor` among the terms of a sum: floordiv(x, divisor) + rest.
struct QuotientIn {
    Expr x, rest;
};
std::optional<QuotientIn> find_quotient(const Expr& sum, const Expr& divisor) {
    std::optional<QuotientIn> found;
    std::vector<Expr> rest;
    for (const Expr& term : terms_of(sum)) {
        if (!found && term.is(ExprKind::FloorDiv) && term.arg(1).same(divisor))
            found = QuotientIn{term.arg(0), 0};
        else
            rest.push_back(term);
    }
    if (found) found->rest = make_sum(std::move(rest));
    return found;
}

// k*c * floordiv(x, c) + k * mod(x, c) is k*x, and k*c * mod(floordiv(x, c) + r, d) + k * mod(x, c) is
// k * mod(x + c*r, c*d).
std::optional<Expr> join_quotient_and_remainder(const std::vector<Expr>& sum) {
    auto single = [](const Expr& term, ExprKind kind) -> const Expr* {
        Monomial m = as_monomial(term);
        return m.count == 1 && m.atoms[0].is(kind) ? &m.atoms[0] : nullptr;
    };
    for (size_t i = 0; i < sum.size(); ++i) {
        const Expr* remainder = single(sum[i], ExprKind::Mod);
        if (!remainder) continue;
        std::optional<int64_t> divisor = remainder->arg(1).as_int();
        if (!divisor || *divisor <= 0) continue;
        int64_t k = as_monomial(sum[i]).coefficient;
        for (size_t j = 0; j < sum.size(); ++j) {
            const Expr *quotient = single(sum[j], ExprKind::FloorDiv), *outer = single(sum[j], ExprKind::Mod);
            if (!quotient && !outer) continue;
            if (checked_mul(k, *divisor) != as_monomial(sum[j]).coefficient) continue;
            std::optional<int64_t> again;  // what the quotient is taken modulo
            std::optional<QuotientIn> found = find_quotient(outer ? outer->arg(0) : *quotient, remainder->arg(1));
            if (!found) continue;
            if (outer) {
                again = outer->arg(1).as_int();
                if (!again || *again <= 0 || !checked_mul(*again, *divisor)) continue;
            }
            const Expr x = simplify_add(found->x, simplify_mul(found->rest, *divisor));
            if (!simplify_mod(x, *divisor).same(*remainder)) continue;
            std::vector<Expr> rest;
            for (size_t t = 0; t < sum.size(); ++t)
                if (t != i && t != j) rest.push_back(sum[t]);
            Expr joined = again ? simplify_mod(x, *again * *divisor) : x;
            return simplify_add(make_sum(std::move(rest)), simplify_mul(k, joined));
        }
    }
    return std::nullopt;
}

Expr finish_sum(std::vector<Expr> sum) {
    if (sum.empty()) return 0;
    if (sum.size() == 1) return std::move(sum[0]);
    int quotients = 0, remainders = 0;
    for (const Expr& term : sum) {
        if (term.is(ExprKind::Add)) return make_sum(std::move(sum));
        const ExprKind last = term.is(ExprKind::Mul) ? term.args().back().kind() : term.kind();
        quotients += last == ExprKind::FloorDiv;
        remainders += last == ExprKind::Mod;
    }
    if (remainders > 0 && quotients + remainders > 1)
        if (std::optional<Expr> joined = join_quotient_and_remainder(sum)) return std::move(*joined);
    return make_node(ExprKind::Add, DType::i64, std::move(sum));
}

// The constants of a product whose product overflows: folded pairwise as far as they go, the largest first.
std::vector<int64_t> fold_factors(std::vector<int64_t> factors) {
    auto larger = [](int64_t a, int64_t b) {
        auto magnitude = [](int64_t v) { return v < 0 ? ~static_cast<uint64_t>(v) + 1 : static_cast<uint64_t>(v); };
        return magnitude(a) != magnitude(b) ? magnitude(a) > magnitude(b) : a > b;
    };
    std::sort(factors.begin(), factors.end(), larger);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < factors.size() && !changed; ++i)
            for (size_t j = i + 1; j < factors.size() && !changed; ++j)
                if (std::optional<int64_t> p = checked_mul(factors[i], factors[j])) {
                    factors.erase(factors.begin() + static_cast<ptrdiff_t>(j));
                    factors[i] = *p;
                    std::sort(factors.begin(), factors.end(), larger);
                    changed = true;
                }
    }
    return factors;
}

Expr make_product(std::vector<int64_t> factors, std::vector<Expr> atoms) {
    factors = fold_factors(std::move(factors));
    if (factors.size() == 1 && factors[0] == 0) return 0;
    std::vector<Expr> args;
    if (factors.size() != 1 || factors[0] != 1)
        for (int64_t f : factors) args.emplace_back(f);
    args.insert(args.end(), atoms.begin(), atoms.end());
    if (args.empty()) return 1;
    if (args.size() == 1) return args[0];
    return make_node(ExprKind::Mul, DType::i64, std::move(args));
}

// coefficient * atoms as one node.
Expr join(int64_t coefficient, const Expr* atoms, size_t count) {
    if (coefficient == 0) return 0;
    if (count == 0) return coefficient;
    if (atoms[0].as_int()) {  // constants left unfolded before
        std::vector<int64_t> factors{coefficient};
        size_t i = 0;
        while (i < count && atoms[i].as_int()) factors.push_back(*atoms[i++].as_int());
        return make_product(std::move(factors), {atoms + i, atoms + count});
    }
    if (coefficient == 1 && count == 1) return atoms[0];
    std::vector<Expr> args;
    args.reserve(count + 1);
    if (coefficient != 1) args.emplace_back(coefficient);
    args.insert(args.end(), atoms, atoms + count);
    return make_node(ExprKind::Mul, DType::i64, std::move(args));
}

Expr multiply(const Monomial& x, const Monomial& y) {
    std::vector<Expr> atoms;
    atoms.reserve(x.count + y.count);
    std::merge(x.atoms, x.atoms + x.count, y.atoms, y.atoms + y.count, std::back_inserter(atoms),
               [](const Expr& a, const Expr& b) { return compare_structure(a, b) < 0; });
    std::optional<int64_t> coefficient = checked_mul(x.coefficient, y.coefficient);
    if (coefficient) return join(*coefficient, atoms.data(), atoms.size());
    size_t constants = 0;
    std::vector<int64_t> factors{x.coefficient, y.coefficient};
    while (constants < atoms.size() && atoms[constants].as_int()) factors.push_back(*atoms[constants++].as_int());
    return make_product(std::move(factors), {atoms.begin() + static_cast<ptrdiff_t>(constants), atoms.end()});
}

bool can_scale(const Expr& sum, int64_t coefficient) {
    return std::all_of(sum.args().begin(), sum.args().end(),
                       [&](const Expr& t) { return checked_mul(as_monomial(t).coefficient, coefficient).has_value(); });
}

// coefficient * e, over each term of a sum.
Expr scale(const Expr& e, int64_t coefficient) {
    if (coefficient == 1) return e;
    Monomial factor{coefficient, nullptr, 0};
    if (!e.is(ExprKind::Add)) return multiply(factor, as_monomial(e));
    if (!can_scale(e, coefficient)) return multiply(factor, as_atom(e));
    std::vector<Expr> terms;
    terms.reserve(e.args().size());
    for (const Expr& term : e.args()) {
        Monomial m = as_monomial(term);
        terms.push_back(make_term(m.coefficient * coefficient, m.atoms, m.count));
    }
    // The order of terms holds, except among unfolded terms of one monomial.
    if (coefficient < 0) return make_sum(std::move(terms));
    return finish_sum(std::move(terms));
}

// What divides every coefficient of a sum, with the sign of its first term.
int64_t content(const Expr& sum) {
    uint64_t g = 0;
    for (const Expr& term : sum.args()) {
        int64_t c = as_monomial(term).coefficient;
        g = std::gcd(g, c < 0 ? ~static_cast<uint64_t>(c) + 1 : static_cast<uint64_t>(c));
    }
    if (g == 0 || g > INT64_MAX) return 1;
    return as_monomial(sum.arg(0)).coefficient < 0 ? -static_cast<int64_t>(g) : static_cast<int64_t>(g);
}

// A product that is not expanded: each factor is an atom, less what divides it.
Expr opaque_product(const Expr& a, const Expr& b) {
    int64_t coefficient = 1;
    auto reduce_factor = [&](const Expr& e) -> Expr {
        if (!e.is(ExprKind::Add) || e.node().reads) return e;
        int64_t c = content(e);
        std::optional<int64_t> product = checked_mul(coefficient, c);
        if (c == 1 || !product) return e;
        std::vector<Expr> terms;
        for (const Expr& term : e.args()) {
            Monomial m = as_monomial(term);
            if (c == -1 && m.coefficient == INT64_MIN) return e;
            terms.push_back(make_term(m.coefficient / c, m.atoms, m.count));
        }
        coefficient = *product;
        return make_sum(std::move(terms));
    };
    Expr x = reduce_factor(a), y = reduce_factor(b);
    Monomial mx = x.is(ExprKind::Add) ? as_atom(x) : as_monomial(x);
    Monomial my = y.is(ExprKind::Add) ? as_atom(y) : as_monomial(y);
    return scale(multiply(mx, my), coefficient);
}

}  // namespace

Monomial as_monomial(const Expr& term) {
    if (term.is(ExprKind::Mul)) {
        const std::vector<Expr>& args = term.args();
        if (std::optional<int64_t> c = args[0].as_int()) return {*c, args.data() + 1, args.size() - 1};
        return {1, args.data(), args.size()};
    }
    if (std::optional<int64_t> c = term.as_int()) return {*c, nullptr, 0};
    return {1, &term, 1};
}

Expr make_term(int64_t coefficient, const Expr* atoms, size_t count) {
    if (coefficient == 0) return 0;
    if (count == 0) return coefficient;
    if (!atoms[0].is(ExprKind::Add) || atoms[0].node().reads) return join(coefficient, atoms, count);
    // What was not expanded with another coefficient may be with this one.
    Expr product = coefficient;
    for (size_t i = 0; i < count; ++i) product = simplify_mul(product, atoms[i]);
    return product;
}

TermRange terms_of(const Expr& e) {
    if (e.is(ExprKind::Add)) return {e.args().data(), e.args().data() + e.args().size()};
    return {&e, &e + 1};
}

Expr make_sum(std::vector<Expr> terms) {
    for (size_t i = 0; i < terms.size(); ++i)
        while (terms[i].is(ExprKind::Add)) {
            Expr inner = std::move(terms[i]);
            terms[i] = inner.arg(0);
            terms.insert(terms.end(), inner.args().begin() + 1, inner.args().end());
        }
    std::sort(terms.begin(), terms.end(), before);
    std::vector<Expr> sum;
    sum.reserve(terms.size());
    for (Expr& term : terms) append_term(sum, std::move(term));
    return finish_sum(std::move(sum));
}

Expr simplify_add(const Expr& a, const Expr& b) {
    std::optional<int64_t> x = a.as_int(), y = b.as_int();
    if (y == 0) return a;
    if (x == 0) return b;
    if (x && y)
        if (std::optional<int64_t> value = checked_add(*x, *y)) return *value;
    TermRange p = terms_of(a), q = terms_of(b);
    std::vector<Expr> sum;
    sum.reserve(p.size() + q.size());
    const Expr *i = p.begin(), *j = q.begin();
    while (i != p.end() || j != q.end()) {
        bool from_a = j == q.end() || (i != p.end() && !before(*j, *i));
        append_term(sum, from_a ? *i++ : *j++);
    }
    return finish_sum(std::move(sum));
}

Expr simplify_mul(const Expr& a, const Expr& b) {
    std::optional<int64_t> x = a.as_int(), y = b.as_int();
    if (x == 0 || y == 0) return 0;
    if (x == 1) return b;
    if (y == 1) return a;
    if (y) return scale(a, *y);
    if (x) return scale(b, *x);
    bool sums = a.is(ExprKind::Add) || b.is(ExprKind::Add);
    if (!sums) return multiply(as_monomial(a), as_monomial(b));
    TermRange p = terms_of(a), q = terms_of(b);
    // A product of run-time values is not expanded: it would read them again.
    if (a.node().reads || b.node().reads || p.size() * q.size() > kMaxExpandedTerms) return opaque_product(a, b);
    std::vector<Expr> terms;
    terms.reserve(p.size() * q.size());
    for (const Expr& s : p)
        for (const Expr& t : q) {
            Monomial m = as_monomial(s), n = as_monomial(t);
            if (!checked_mul(m.coefficient, n.coefficient)) return opaque_product(a, b);
            terms.push_back(multiply(m, n));
        }
    return make_sum(std::move(terms));
}

}  // namespace tessera
