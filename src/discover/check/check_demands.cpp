#include "discover/check/check_demands.h"

#include <cmath>

namespace tessera::checker {
namespace {

Scope narrowed(Scope scope, const Conjunction& more) {
    scope.where.insert(scope.where.end(), more.begin(), more.end());
    return scope;
}

Scope opened(Names& names, Scope scope, const Expr& reduction) {
    for (const ReduceAxis& axis : reduction.node().axes) {
        const std::string& name = axis.var.node().name;
        const Whole v{{{names.declare(name, Names::Kind::Variable)}, 1}};
        scope.variables.push_back(name);
        scope.where.push_back(v);
        scope.where.push_back(plus(plus(names.read(axis.extent), constant_whole(-1)), v, -1));
    }
    return scope;
}

class Collector {
  public:
    explicit Collector(Names& names) : names_(names) {}

    void walk(const Expr& e, const Scope& scope, const std::vector<Lenient>& inside) {
        if (out_.size() > 2000) throw Refused{"it asks for too much"};
        if (e.is(ExprKind::Const) || e.is(ExprKind::Var) || e.is(ExprKind::Load)) return;
        if (!e.node().reads && !is_float(e.dtype()) && e.dtype() != DType::boolean) return;  // an index
        if (is_extreme(e)) return extreme(e, scope, inside);
        switch (e.kind()) {
            case ExprKind::Select: return choice(e, scope, inside);
            case ExprKind::Reduce: return walk(e.arg(0), opened(names_, scope, e), inside);
            case ExprKind::Div:
                walk(e.arg(0), scope, inside);
                demand(Need::NotZero, e.arg(1), scope, inside);
                return walk(e.arg(1), scope, with(inside, {"inverse", e.arg(1), scope}));
            case ExprKind::Pow: return power(e, scope, inside);
            case ExprKind::Call: return function(e, scope, inside);
            default:
                for (const Expr& a : e.args()) walk(a, scope, inside);
        }
    }

    std::vector<Demand> take() { return std::move(out_); }

  private:
    Names& names_;
    std::vector<Demand> out_;

    static std::vector<Lenient> with(std::vector<Lenient> inside, Lenient one) {
        inside.push_back(std::move(one));
        return inside;
    }

    void demand(Need need, const Expr& what, const Scope& scope, const std::vector<Lenient>& inside,
                std::string function = {}) {
        out_.push_back({need, what, std::move(function), scope, inside});
    }

    void extreme(const Expr& e, const Scope& scope, const std::vector<Lenient>& inside) {
        demand(Need::NotEmpty, e, scope, inside);
        for (const Point& p : points_of(names_, e, scope))
            walk(p.value, p.scope, with(inside, {is_largest(e) ? "max" : "min", p.value, p.scope}));
    }

    void choice(const Expr& e, const Scope& scope, const std::vector<Lenient>& inside) {
        if (!is_of_indices(e.arg(0))) {  // what is not taken is not evaluated: defined where the same choice is
            for (const Expr& a : e.args()) walk(a, scope, with(inside, {"choice", e, scope}));
            return;
        }
        for (bool holds : {true, false})
            for (const Conjunction& c : names_.read(e.arg(0), holds))
                walk(e.arg(holds ? 1 : 2), narrowed(scope, c), inside);
    }

    void power(const Expr& e, const Scope& scope, const std::vector<Lenient>& inside) {
        const Expr& n = e.arg(1);
        if (!n.is(ExprKind::Const) || !is_float(n.dtype())) {
            demand(Need::Domain, e, scope, inside, "pow");
        } else {
            const bool whole = n.node().real == std::floor(n.node().real), above = n.node().real >= 0;
            if (!whole || !above)
                demand(whole ? Need::NotZero : above ? Need::NotNegative : Need::Positive, e.arg(0), scope, inside);
        }
        for (const Expr& a : e.args()) walk(a, scope, with(inside, {"pow", e, scope}));
    }

    void function(const Expr& e, const Scope& scope, const std::vector<Lenient>& inside) {
        bool strict = false, known = true;  // strict: what is no number inside gives none
        switch (e.node().fn) {
            case Fn::Log:
                demand(Need::Positive, e.arg(0), scope, inside);
                strict = true;
                break;
            case Fn::Sqrt:
                demand(Need::NotNegative, e.arg(0), scope, inside);
                strict = true;
                break;
            case Fn::Log1p:
                demand(Need::Positive, e.arg(0) + real_const(1, e.dtype()), scope, inside);
                strict = true;
                break;
            case Fn::Abs:
            case Fn::Floor:
            case Fn::Ceil:
            case Fn::Round:
            case Fn::Trunc:
            case Fn::Sin:
            case Fn::Cos:
            case Fn::Sinh:
            case Fn::Cosh:
            case Fn::Asinh: strict = true; break;
            case Fn::Sign:
            case Fn::Exp:
            case Fn::Expm1:
            case Fn::Atan:
            case Fn::Tanh:
            case Fn::Erf:
            case Fn::IsNan:
            case Fn::IsInf: break;
            default: known = false;
        }
        const std::string name(fn_name(e.node().fn));
        if (!known) demand(Need::Domain, e, scope, inside, name);
        for (const Expr& a : e.args()) walk(a, scope, strict ? inside : with(inside, {name, e, scope}));
    }
};

void collect(Names& names, const Expr& e, bool largest, const Scope& scope, std::vector<Point>& out) {
    if (e.is(ExprKind::Const) && is_float(e.dtype()) && std::isinf(e.node().real) && (e.node().real < 0) == largest)
        return;
    if (e.is(ExprKind::Select) && is_of_indices(e.arg(0))) {
        for (bool holds : {true, false})
            for (const Conjunction& c : names.read(e.arg(0), holds))
                collect(names, e.arg(holds ? 1 : 2), largest, narrowed(scope, c), out);
    } else if (is_extreme(e) && is_largest(e) == largest) {
        if (e.is(ExprKind::Reduce)) return collect(names, e.arg(0), largest, opened(names, scope, e), out);
        for (const Expr& a : e.args()) collect(names, a, largest, scope, out);
    } else {
        if (out.size() > 500) throw Refused{"an extremum of too many points"};
        out.push_back({e, scope});
    }
}

}  // namespace

bool is_of_indices(const Expr& condition) {
    bool floats = condition.node().reads;
    visit(condition, [&](const Expr& e) { floats = floats || is_float(e.dtype()); });
    return !floats;
}

bool is_largest(const Expr& e) {
    return e.is(ExprKind::Max) || (e.is(ExprKind::Reduce) && e.node().reduce_op == ReduceOp::Max);
}

bool is_extreme(const Expr& e) {
    if (!is_float(e.dtype())) return false;
    return is_largest(e) || e.is(ExprKind::Min) || (e.is(ExprKind::Reduce) && e.node().reduce_op == ReduceOp::Min);
}

std::vector<Point> points_of(Names& names, const Expr& extreme, const Scope& scope) {
    std::vector<Point> out;
    collect(names, extreme, is_largest(extreme), scope, out);
    return out;
}

std::vector<Demand> demands_of(Names& names, const Expr& e) {
    Collector collector(names);
    collector.walk(e, {}, {});
    return collector.take();
}

}  // namespace tessera::checker
