#include "graph/gradient/index_equations.h"

#include <algorithm>
#include <optional>

#include "expr/simplify.h"

namespace tessera {
namespace {

constexpr int kMostSplits = 16;

struct Term {
    size_t var;
    int64_t coefficient;
};
struct Affine {
    std::vector<Term> terms;
    Expr rest = 0;
};

class Inversion {
  public:
    Inversion(IndexEquations& e, const std::vector<Expr>& at, const std::vector<Expr>& shape)
        : e_(e), at_(at), shape_(shape), open_(e.index.size(), true) {}

    bool run() {
        split_digits();
        for (size_t left = e_.index.size(); left > 0; --left)
            if (!solve_one()) return false;
        drop_known_guards();
        return true;
    }

  private:
    bool names_var(const Expr& e) const {
        const std::vector<std::string> names = free_symbols(e);
        return std::any_of(e_.vars.begin(), e_.vars.end(), [&](const ReduceAxis& axis) {
            return std::binary_search(names.begin(), names.end(), axis.var.node().name);
        });
    }

    void substitute_all(const Bindings& bindings) {
        for (Expr& i : e_.index) i = substitute(i, bindings);
        for (Expr& g : e_.guards) g = substitute(g, bindings);
        for (ReduceAxis& axis : e_.vars) axis.extent = substitute(axis.extent, bindings);
        e_.value = substitute(e_.value, bindings);
    }

    // v -> c*q + r where an index has v / c or v % c.
    void split_digits() {
        for (int split = 0; split < kMostSplits; ++split) {
            std::optional<size_t> which;
            int64_t by = 0;
            for (const Expr& index : e_.index)
                visit(index, [&](const Expr& x) {
                    if (!x.is(ExprKind::FloorDiv) && !x.is(ExprKind::Mod)) return;
                    const auto c = x.arg(1).as_int();
                    for (size_t v = 0; c && *c > 1 && v < e_.vars.size(); ++v)
                        if (x.arg(0) == e_.vars[v].var && (!which || *c < by)) which = v, by = *c;
                });
            if (!which) return;
            const ReduceAxis old = e_.vars[*which];
            const Expr count = ceil_div(old.extent, by);
            const ReduceAxis high{index_var(old.var.node().name + "h", count.as_int()), count};
            const ReduceAxis low{index_var(old.var.node().name + "l", by), Expr(by)};
            const Expr whole = high.var * by + low.var;
            e_.vars[*which] = high;
            e_.vars.insert(e_.vars.begin() + std::ptrdiff_t(*which) + 1, low);
            substitute_all({{old.var.node().name, whole}});
            if (!mod(old.extent, by).is_int(0)) guard(lt(whole, old.extent));
        }
    }

    std::optional<Affine> affine(const Expr& index) const {
        Affine a;
        for (const Expr& term : terms_of(index)) {
            if (!names_var(term)) {
                a.rest = a.rest + term;
                continue;
            }
            const Monomial m = as_monomial(term);
            if (m.count != 1 || !m.atoms[0].is(ExprKind::Var)) return {};
            for (size_t v = 0; v < e_.vars.size(); ++v)
                if (e_.vars[v].var.node().name == m.atoms[0].node().name) a.terms.push_back({v, m.coefficient});
        }
        return a;
    }

    void guard(const Expr& g) {
        if (!(g.is(ExprKind::Const) && g.node().integer)) e_.guards.push_back(g);
    }

    // Variable v is this from now on, wherever that is inside its range.
    void bind(size_t v, const Expr& to) {
        const ReduceAxis axis = e_.vars[v];
        e_.vars.erase(e_.vars.begin() + std::ptrdiff_t(v));
        substitute_all({{axis.var.node().name, to}});
        guard(ge(to, 0));
        guard(lt(to, axis.extent));
    }

    bool solve_one() {
        std::optional<size_t> best;
        int best_rank = 0;
        for (size_t d = 0; d < e_.index.size(); ++d) {
            if (!open_[d]) continue;
            const int r = rank(d);
            if (r > 0 && (!best || r < best_rank)) best = d, best_rank = r;
        }
        if (!best) return false;
        const size_t d = *best;
        open_[d] = false;
        if (!names_var(e_.index[d])) {
            const bool alone = shape_[d].is_int(1) && e_.index[d].is_int(0);
            if (!alone) guard(eq(e_.index[d], at_[d]));
            return true;
        }
        const Affine a = *affine(e_.index[d]);
        if (mixed_radix(a))
            by_digits(d, a);
        else
            by_one(d, a);
        return true;
    }

    // Which to solve first: 1 nothing is left to solve, 2 one variable as it is, 3 digits, 4 one with a step, 5 one of
    // several; 0 not at all.
    int rank(size_t d) const {
        if (!names_var(e_.index[d])) return 1;
        auto a = affine(e_.index[d]);
        if (!a) return 0;
        if (a->terms.size() == 1) return std::abs(a->terms[0].coefficient) == 1 ? 2 : 4;
        return mixed_radix(*a) ? 3 : 5;
    }

    bool mixed_radix(const Affine& a) const {
        if (a.terms.size() < 2) return false;
        const std::vector<Term> digits = descending(a);
        int64_t reach = 0;  // the largest value of the lower digits
        for (size_t i = digits.size(); i-- > 0;) {
            auto extent = e_.vars[digits[i].var].extent.as_int();
            if (!extent || digits[i].coefficient <= reach) return false;
            reach += digits[i].coefficient * std::max<int64_t>(*extent - 1, 0);
        }
        return true;
    }

    static std::vector<Term> descending(const Affine& a) {
        std::vector<Term> terms = a.terms;
        std::stable_sort(terms.begin(), terms.end(),
                         [](const Term& x, const Term& y) { return x.coefficient > y.coefficient; });
        return terms;
    }

    void by_digits(size_t d, const Affine& a) {
        Expr left = at_[d] - a.rest;
        std::vector<std::pair<std::string, Expr>> found;
        for (const Term& t : descending(a)) {
            found.emplace_back(e_.vars[t.var].var.node().name, floor_div(left, t.coefficient));
            left = mod(left, t.coefficient);
        }
        guard(eq(left, 0));
        for (const auto& [name, to] : found)
            for (size_t v = 0; v < e_.vars.size(); ++v)
                if (e_.vars[v].var.node().name == name) {
                    bind(v, to);
                    break;
                }
    }

    // The variable with the most values, so that the sum over the others is short; outputs come first.
    void by_one(size_t d, const Affine& a) {
        const Term* chosen = &a.terms[0];
        auto size = [&](const Term& t) { return e_.vars[t.var].extent.as_int().value_or(INT64_MAX); };
        for (const Term& t : a.terms)
            if (size(t) > size(*chosen)) chosen = &t;
        Expr left = at_[d] - a.rest;
        for (const Term& t : a.terms)
            if (&t != chosen) left = left - e_.vars[t.var].var * t.coefficient;
        int64_t step = chosen->coefficient;
        if (step < 0) left = -left, step = -step;
        if (step != 1) guard(eq(mod(left, step), 0));
        bind(chosen->var, floor_div(left, step));
    }

    // What every element of the input satisfies, and conditions that are constant.
    void drop_known_guards() {
        std::vector<ReduceAxis> ranges = e_.vars;
        for (size_t d = 0; d < at_.size(); ++d) ranges.push_back({at_[d], shape_[d]});
        std::vector<Expr> kept;
        for (const Expr& g : e_.guards) {
            bool known = g.is(ExprKind::Const) && g.node().integer;
            for (const ReduceAxis& r : ranges) known |= g == lt(r.var, r.extent) || g == ge(r.var, 0);
            if (!known && std::find(kept.begin(), kept.end(), g) == kept.end()) kept.push_back(g);
        }
        e_.guards = std::move(kept);
    }

    IndexEquations& e_;
    const std::vector<Expr>&at_, &shape_;
    std::vector<bool> open_;
};

}  // namespace

bool invert(IndexEquations& e, const std::vector<Expr>& at, const std::vector<Expr>& shape) {
    return Inversion(e, at, shape).run();
}

}  // namespace tessera
