#include "discover/prove/normalise.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

namespace tessera::prover {
namespace {

Rational reduced(__int128 n, __int128 d) {
    if (d < 0) n = -n, d = -d;
    __int128 a = n < 0 ? -n : n, b = d;
    while (b) {
        __int128 t = a % b;
        a = b, b = t;
    }
    if (a > 1) n /= a, d /= a;
    if (n > INT64_MAX || n < -INT64_MAX || d > INT64_MAX) throw Unsupported{"a coefficient beyond 64 bits"};
    return {static_cast<int64_t>(n), static_cast<int64_t>(d)};
}

// As a fraction, where its parts are small.
std::optional<Rational> exact(double value) {
    if (!std::isfinite(value)) throw Unsupported{"an infinite constant"};
    int64_t d = 1;
    while (value != std::floor(value) && d < (int64_t{1} << 40)) value *= 2, d *= 2;
    if (value != std::floor(value) || std::fabs(value) > 0x1p40) return {};
    return reduced(static_cast<int64_t>(value), d);
}

// A condition on indices and sizes alone.
bool is_of_indices(const Expr& c) {
    if (c.node().reads) return false;
    bool of_floats = false;
    visit(c, [&](const Expr& e) { of_floats |= is_float(e.dtype()); });
    return !of_floats;
}

bool loses_nothing(DType from, DType to) {
    if (from == to || to == DType::f64) return true;
    return to == DType::f32 && from != DType::f64;  // the others have 16 bits
}

Summand plain(Rational coefficient, std::vector<Factor> factors = {}) {
    return {coefficient, {}, {}, std::move(factors)};
}

bool is_infinite(const Expr& e, bool positive) {
    return e.is(ExprKind::Const) && is_float(e.dtype()) && std::isinf(e.node().real) && (e.node().real > 0) == positive;
}

}  // namespace

Rational operator*(const Rational& a, const Rational& b) {
    return reduced(__int128{a.numerator} * b.numerator, __int128{a.denominator} * b.denominator);
}
Rational operator+(const Rational& a, const Rational& b) {
    return reduced(__int128{a.numerator} * b.denominator + __int128{b.numerator} * a.denominator,
                   __int128{a.denominator} * b.denominator);
}

Sum negated(Sum s) {
    for (Summand& t : s) t.coefficient.numerator = -t.coefficient.numerator;
    return s;
}

void substitute_in(Atoms& atoms, Sum& s, const Atoms::Map& map) {
    for (Summand& t : s) {
        for (Poly& g : t.guards) g = atoms.substitute(g, map);
        for (Factor& f : t.factors) {
            for (Poly& p : f.index) p = atoms.substitute(p, map);
            for (Sum& a : f.args) substitute_in(atoms, a, map);
        }
    }
}

Sum Expansion::limited(Sum s) const {
    if (s.size() > max_terms_) throw Unsupported{"too many terms"};
    return s;
}

Poly Expansion::convert(const Expr& e) {
    Bindings renamed;
    for (const auto& [name, id] : bound_) renamed.insert_or_assign(name, index_var(atoms_[id].name, std::nullopt));
    return atoms_.convert(substitute(e, renamed));
}

Cases Expansion::when(const Expr& e, bool holds) {
    Bindings renamed;
    for (const auto& [name, id] : bound_) renamed.insert_or_assign(name, index_var(atoms_[id].name, std::nullopt));
    return atoms_.when(substitute(e, renamed), holds);
}

std::vector<int> Expansion::bind(const Expr& reduce, Guards& guards) {
    std::vector<int> variables;
    std::vector<Poly> extents;
    for (const ReduceAxis& axis : reduce.node().axes) extents.push_back(convert(index_bound(axis.extent)));
    for (size_t i = 0; i < extents.size(); ++i) {
        int id = atoms_.variable("_v" + std::to_string(++next_));
        guards.push_back(Poly::atom(id));
        guards.push_back(extents[i] - Poly(1) - Poly::atom(id));
        variables.push_back(id);
        bound_.emplace_back(reduce.node().axes[i].var.node().name, id);
    }
    return variables;
}

Sum Expansion::times(const Sum& a, const Sum& b) {
    Sum out;
    for (const Summand& x : a)
        for (const Summand& y : b) {
            Summand t = x;
            t.coefficient = x.coefficient * y.coefficient;
            t.variables.insert(t.variables.end(), y.variables.begin(), y.variables.end());
            t.guards.insert(t.guards.end(), y.guards.begin(), y.guards.end());
            t.factors.insert(t.factors.end(), y.factors.begin(), y.factors.end());
            out.push_back(std::move(t));
        }
    return limited(std::move(out));
}

Sum Expansion::call(std::string name, const std::vector<Expr>& args) {
    Factor f{Factor::Kind::Call};
    f.name = std::move(name);
    for (const Expr& a : args) f.args.push_back(expand(a));
    return {plain({}, {std::move(f)})};
}

// An integer as a real number: a polynomial in the numbers of its atoms.
Sum Expansion::number(const Expr& e) {
    Sum out;
    Poly p = convert(e);
    for (const Mono& m : p.terms) {
        Summand t = plain({m.coefficient, 1});
        for (int id : atoms_of(m.key)) {
            Factor f{Factor::Kind::Number};
            f.index = {Poly::atom(id)};
            t.factors.push_back(std::move(f));
        }
        out.push_back(std::move(t));
    }
    return out;
}

// 1 / e: of a number, of a product factor by factor.
Sum Expansion::inverse(const Expr& e) {
    Sum below = expand(e);
    if (below.size() == 1 && below[0].variables.empty() && below[0].guards.empty() && below[0].coefficient.numerator) {
        Rational c = below[0].coefficient;
        Sum out{plain(reduced(c.denominator, c.numerator))};
        for (const Factor& f : below[0].factors) {
            if (f.kind == Factor::Kind::Call && f.name == "inverse") {  // 1 / (1 / a) = a
                out = times(out, f.args[0]);
                continue;
            }
            Factor inv{Factor::Kind::Call};
            inv.name = "inverse";
            inv.args = {Sum{plain({}, {f})}};
            for (Summand& t : out) t.factors.push_back(inv);
        }
        return out;
    }
    Factor inv{Factor::Kind::Call};
    inv.name = "inverse";
    inv.args = {std::move(below)};
    return {plain({}, {std::move(inv)})};
}

// The alternatives of a maximum or minimum. What is infinite the other way is none.
void Expansion::points(const Expr& e, bool largest, const Summand& so_far, Sum& out) {
    if (is_infinite(e, !largest)) return;
    if (e.is(ExprKind::Select) && is_of_indices(e.arg(0))) {
        for (bool holds : {true, false})
            for (const Guards& g : when(e.arg(0), holds)) {
                Summand t = so_far;
                t.guards.insert(t.guards.end(), g.begin(), g.end());
                points(e.arg(holds ? 1 : 2), largest, t, out);
            }
        return;
    }
    if (e.is(largest ? ExprKind::Max : ExprKind::Min)) {
        for (const Expr& a : e.args()) points(a, largest, so_far, out);
        return;
    }
    if (e.is(ExprKind::Reduce) && e.node().reduce_op == (largest ? ReduceOp::Max : ReduceOp::Min)) {
        Summand t = so_far;
        size_t depth = bound_.size();
        for (int id : bind(e, t.guards)) t.variables.push_back(id);
        points(e.arg(0), largest, t, out);
        bound_.resize(depth);
        return;
    }
    Summand t = so_far;
    Factor f{Factor::Kind::Call};
    f.name = "point";
    f.args = {expand(e)};
    t.factors = {std::move(f)};
    out.push_back(std::move(t));
    if (out.size() > max_terms_) throw Unsupported{"too many terms"};
}

// 1 where a condition on values holds, 0 where it does not.
Sum Expansion::truth(const Expr& c) {
    switch (c.kind()) {
        case ExprKind::Lt: return call("less", c.args());
        case ExprKind::Le: return call("at_most", c.args());
        case ExprKind::Eq: return call("equal", c.args());
        case ExprKind::Call: return call(std::string(fn_name(c.node().fn)), c.args());
        case ExprKind::And: {
            Sum a = truth(c.arg(0));
            return times(a, truth(c.arg(1)));
        }
        case ExprKind::Not: {
            Sum out{plain({})}, a = negated(truth(c.arg(0)));
            out.insert(out.end(), a.begin(), a.end());
            return out;
        }
        default: throw Unsupported{"a condition on values: " + to_string(c).substr(0, 60)};
    }
}

Sum Expansion::constant(const Expr& e) {
    if (!is_float(e.dtype())) return e.node().integer ? Sum{plain({e.node().integer, 1})} : Sum{};
    std::optional<Rational> c = exact(e.node().real);
    if (!c) return call(fmt::format("{:a}", e.node().real), {});
    return c->numerator ? Sum{plain(*c)} : Sum{};
}

Sum Expansion::element(const Expr& load) {
    Factor f{Factor::Kind::Load};
    f.slot = load.node().slot;
    for (const Expr& i : load.args()) f.index.push_back(convert(i));
    return {plain({}, {std::move(f)})};
}

Sum Expansion::added(const Expr& e) {
    Sum out = expand(e.arg(0)), more = expand(e.arg(1));
    if (e.is(ExprKind::Sub)) more = negated(std::move(more));
    out.insert(out.end(), more.begin(), more.end());
    return limited(std::move(out));
}

Sum Expansion::power(const Expr& e) {
    const Expr& n = e.arg(1);
    if (!n.is(ExprKind::Const) || !is_float(n.dtype()) || (n.node().real != 2 && n.node().real != 3))
        return call("pow", e.args());
    Sum out = expand(e.arg(0));
    for (int i = 1; i < static_cast<int>(n.node().real); ++i) out = times(out, expand(e.arg(0)));
    return out;
}

Sum Expansion::choice(const Expr& e) {
    Sum out;
    if (!is_of_indices(e.arg(0))) {
        // c * a + b - c * b
        Sum c = truth(e.arg(0)), b = expand(e.arg(2));
        out = times(c, expand(e.arg(1)));
        out.insert(out.end(), b.begin(), b.end());
        c = truth(e.arg(0));
        Sum less = negated(times(c, expand(e.arg(2))));
        out.insert(out.end(), less.begin(), less.end());
        return limited(std::move(out));
    }
    for (bool holds : {true, false})
        for (const Guards& g : when(e.arg(0), holds))
            for (Summand& t : expand(e.arg(holds ? 1 : 2))) {
                t.guards.insert(t.guards.begin(), g.begin(), g.end());
                out.push_back(std::move(t));
            }
    return limited(std::move(out));
}

Sum Expansion::extreme(const Expr& e, bool largest) {
    Factor f{Factor::Kind::Extreme};
    f.name = largest ? "max" : "min";
    f.args.emplace_back();
    points(e, largest, plain({}), f.args[0]);
    return {plain({}, {std::move(f)})};
}

Sum Expansion::sum(const Expr& reduce) {
    Guards guards;
    size_t depth = bound_.size();
    std::vector<int> variables = bind(reduce, guards);
    Sum inner = expand(reduce.arg(0));
    bound_.resize(depth);
    for (Summand& t : inner) {  // each term has variables of its own
        t.variables.insert(t.variables.begin(), variables.begin(), variables.end());
        t.guards.insert(t.guards.begin(), guards.begin(), guards.end());
    }
    return inner;
}

Sum Expansion::expand(const Expr& e) {
    const bool real = is_float(e.dtype());
    switch (e.kind()) {
        case ExprKind::Const: return constant(e);
        case ExprKind::Load: return element(e);
        case ExprKind::Add:
        case ExprKind::Sub:
            if (real) return added(e);
            break;
        case ExprKind::Neg: return negated(expand(e.arg(0)));
        case ExprKind::Mul:
        case ExprKind::Div: {
            if (!real) break;
            Sum a = expand(e.arg(0));
            return times(a, e.is(ExprKind::Mul) ? expand(e.arg(1)) : inverse(e.arg(1)));
        }
        case ExprKind::Pow: return power(e);
        case ExprKind::Select: return choice(e);
        case ExprKind::Cast:
            if (real && e.arg(0).dtype() == DType::i64 && !e.arg(0).node().reads) return number(e.arg(0));
            if (kWideFloats.has(e.dtype()) && kWideFloats.has(e.arg(0).dtype())) {
                if (loses_nothing(e.arg(0).dtype(), e.dtype())) return expand(e.arg(0));
                return call(fmt::format("rounded to {}", dtype_name(e.dtype())), e.args());
            }
            break;
        case ExprKind::Call: return call(std::string(fn_name(e.node().fn)), e.args());
        case ExprKind::Min:
        case ExprKind::Max:
            if (real) return extreme(e, e.is(ExprKind::Max));
            break;
        case ExprKind::Reduce: {
            const ReduceOp op = e.node().reduce_op;
            if (!real || op == ReduceOp::Prod) break;
            return op == ReduceOp::Sum ? sum(e) : extreme(e, op == ReduceOp::Max);
        }
        default: break;
    }
    throw Unsupported{"no law for " + to_string(e).substr(0, 60)};
}

}  // namespace tessera::prover
