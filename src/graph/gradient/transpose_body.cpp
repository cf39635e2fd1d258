#include "graph/gradient/transpose_body.h"

#include <algorithm>

#include "expr/simplify.h"
#include "graph/gradient/index_equations.h"

namespace tessera {
namespace {

Expr zero_like(const Expr& e) { return constant(0, e.dtype()); }

bool is_zero(const Expr& e) {
    return e.is(ExprKind::Const) && (is_float(e.dtype()) ? e.node().real == 0 : e.is_int(0));
}

void split_conditions(const Expr& e, std::vector<Expr>& parts) {
    if (!e.is(ExprKind::And)) return parts.push_back(e);
    for (const Expr& a : e.args()) split_conditions(a, parts);
}

Expr all_of(const std::vector<Expr>& conditions) {
    Expr all = int_const(1, DType::boolean);
    for (const Expr& c : conditions) all = logical_and(all, c);
    return all;
}

// select(c, v, 0) gives up the parts of c that only indices decide.
Expr without_guards(Expr value, std::vector<Expr>& guards) {
    while (value.is(ExprKind::Select)) {
        const bool then = is_zero(value.arg(2));
        if (!then && !is_zero(value.arg(1))) break;
        std::vector<Expr> all, kept;
        split_conditions(then ? value.arg(0) : logical_not(value.arg(0)), all);
        for (const Expr& c : all) (c.node().reads ? kept : guards).push_back(c);
        const Expr inner = value.arg(then ? 1 : 2);
        if (!kept.empty()) return select(all_of(kept), inner, zero_like(inner));
        value = inner;
    }
    return value;
}

void factors_of(const Expr& e, std::vector<Expr>& factors) {
    if (!e.is(ExprKind::Mul)) return factors.push_back(e);
    for (const Expr& a : e.args()) factors_of(a, factors);
}

// Whether all that it reads is there for every value of these variables: each index is one of them, over its extent.
bool reads_inside(const Expr& e, const std::vector<Expr>& plain) {
    bool inside = true;
    visit(e, [&](const Expr& x) {
        if (x.is(ExprKind::Load))
            for (const Expr& i : x.args())
                inside &= i.as_int() || std::find(plain.begin(), plain.end(), i) != plain.end();
        inside &= !x.is(ExprKind::Reduce);
    });
    return inside;
}

// A sum of products whose guards are at a factor that needs them: the form of a padded window.
Expr guarded_sum(const IndexEquations& e, const std::vector<Expr>& at) {
    Expr value = e.value;
    if (!e.guards.empty() && !e.vars.empty()) {
        std::vector<Expr> factors, plain = at, guarded;
        for (const ReduceAxis& axis : e.vars) plain.push_back(axis.var);
        factors_of(value, factors);
        std::optional<Expr> free;
        for (const Expr& f : factors) {
            if (f.is(ExprKind::Const) || !reads_inside(f, plain))
                guarded.push_back(f);
            else
                free = free ? *free * f : f;
        }
        if (guarded.empty()) guarded.push_back(std::exchange(free, std::nullopt).value());
        Expr product = guarded[0];
        for (size_t i = 1; i < guarded.size(); ++i) product = product * guarded[i];
        product = select(all_of(e.guards), product, zero_like(product));
        value = free ? product * *free : product;
    }
    if (!e.vars.empty()) return sum(e.vars, value);
    return e.guards.empty() ? value : select(all_of(e.guards), value, zero_like(value));
}

bool names_it(const Expr& e, const ReduceAxis& axis) {
    const std::vector<std::string> names = free_symbols(e);
    return std::binary_search(names.begin(), names.end(), axis.var.node().name);
}

Scattered scatter(const IndexEquations& e, const std::vector<Expr>& shape) {
    Scattered s;
    std::vector<ReduceAxis> summed, rest = e.vars;
    for (size_t d = 0; d < e.index.size(); ++d) {
        auto own = std::find_if(rest.begin(), rest.end(), [&](const ReduceAxis& axis) {
            if (!(axis.var == e.index[d]) || !(axis.extent == shape[d])) return false;
            for (size_t other = 0; other < e.index.size(); ++other)
                if (other != d && names_it(e.index[other], axis)) return false;
            return true;
        });
        if (own != rest.end()) {
            s.whole.push_back(*own);
            rest.erase(own);
        } else {
            s.dims.push_back(d);
            s.at.push_back(e.index[d]);
        }
    }
    for (const ReduceAxis& axis : rest) {
        auto indexes = [&](const Expr& at) { return names_it(at, axis); };
        (std::any_of(s.at.begin(), s.at.end(), indexes) ? s.over : summed).push_back(axis);
    }
    IndexEquations inner = e;
    inner.vars = summed;
    std::vector<Expr> plain;
    for (const ReduceAxis& axis : s.over) plain.push_back(axis.var);
    for (const ReduceAxis& axis : s.whole) plain.push_back(axis.var);
    s.value = guarded_sum(inner, plain);
    // Where nothing is added, the index may be anything.
    bool conditional = false;
    visit(e.value, [&](const Expr& x) { conditional |= x.is(ExprKind::Select); });
    for (size_t k = 0; k < s.at.size() && (conditional || !e.guards.empty()); ++k)
        s.at[k] = clamp(s.at[k], 0, shape[s.dims[k]] - 1);
    return s;
}

// An index that is one of two, as two sets of equations; the condition is of indices.
std::optional<std::pair<Expr, size_t>> choice_in(const IndexEquations& e) {
    for (size_t d = 0; d < e.index.size(); ++d) {
        std::optional<Expr> found;
        visit(e.index[d], [&](const Expr& x) {
            if (!found && x.is(ExprKind::Select) && !x.arg(0).node().reads) found = x;
        });
        if (found) return std::pair(*found, d);
    }
    return {};
}

void solve(IndexEquations e, const std::vector<Expr>& at, const std::vector<Expr>& shape, Transposed& result) {
    if (auto choice = choice_in(e)) {
        const auto& [chosen, d] = *choice;
        for (size_t branch : {1u, 2u}) {
            IndexEquations one = e;
            auto taken = [&](const Expr& x) { return x == chosen ? chosen.arg(branch) : x; };
            for (Expr& index : one.index) index = rewrite(index, taken);
            const Expr holds = branch == 1 ? chosen.arg(0) : logical_not(chosen.arg(0));
            if (holds.is(ExprKind::Const) && !holds.node().integer) continue;
            if (!holds.is(ExprKind::Const)) split_conditions(holds, one.guards);
            solve(std::move(one), at, shape, result);
        }
        return;
    }
    IndexEquations solved = e;
    if (!invert(solved, at, shape)) return result.scattered.push_back(scatter(e, shape));
    if (is_zero(solved.value)) return;
    const Expr part = guarded_sum(solved, at);
    result.gathered = result.gathered ? *result.gathered + part : part;
}

}  // namespace

Transposed transpose_body(const std::vector<Reached>& parts, const std::vector<ReduceAxis>& outputs,
                          const std::vector<Expr>& at, const std::vector<Expr>& shape) {
    auto same_axes = [](const Reached& a, const Reached& b) {
        return std::equal(a.axes.begin(), a.axes.end(), b.axes.begin(), b.axes.end(),
                          [](const ReduceAxis& x, const ReduceAxis& y) { return x.var == y.var; });
    };
    std::vector<Reached> merged;
    for (const Reached& part : parts) {
        auto known = std::find_if(merged.begin(), merged.end(), [&](const Reached& other) {
            return other.load == part.load && same_axes(other, part);
        });
        if (known == merged.end())
            merged.push_back(part);
        else
            known->adjoint = known->adjoint + part.adjoint;
    }
    Transposed result;
    for (const Reached& part : merged) {
        IndexEquations e;
        e.vars = outputs;
        e.vars.insert(e.vars.end(), part.axes.begin(), part.axes.end());
        e.index = part.load.args();
        e.value = without_guards(part.adjoint, e.guards);
        if (!is_zero(e.value)) solve(std::move(e), at, shape, result);
    }
    return result;
}

}  // namespace tessera
