#include "graph/gradient/derive_body.h"

#include <cmath>
#include <numbers>
#include <unordered_map>

namespace tessera {
namespace {

Expr number(double v, const Expr& like) { return constant(v, like.dtype()); }
Expr squared(const Expr& x) { return x * x; }

// exp(t) where e is 1 / (1 + exp(t)), whose quotient rule would overflow.
std::optional<Expr> exponent_of_sigmoid(const Expr& e) {
    auto is_one = [](const Expr& x) { return x.is(ExprKind::Const) && is_float(x.dtype()) && x.node().real == 1; };
    auto is_exp = [](const Expr& x) { return x.is(ExprKind::Call) && x.node().fn == Fn::Exp; };
    if (!e.is(ExprKind::Div) || !is_one(e.arg(0)) || !e.arg(1).is(ExprKind::Add)) return {};
    const Expr &a = e.arg(1).arg(0), &b = e.arg(1).arg(1);
    if (is_one(a) && is_exp(b)) return b;
    if (is_one(b) && is_exp(a)) return a;
    return {};
}

// The derivative of a function of one argument, times what reaches it; nothing where it is zero everywhere.
std::optional<Expr> through_call(const Expr& e, const Expr& a) {
    const Expr& x = e.arg(0);
    const Expr one = number(1, a);
    switch (e.node().fn) {
        case Fn::Abs: return a * call(Fn::Sign, {x});
        case Fn::Sqrt: return a / (number(2, a) * e);
        case Fn::Exp: return a * e;
        case Fn::Log: return a / x;
        case Fn::Log1p: return a / (one + x);
        case Fn::Expm1: return a * (e + one);
        case Fn::Sin: return a * call(Fn::Cos, {x});
        case Fn::Cos: return -(a * call(Fn::Sin, {x}));
        case Fn::Tan: return a * (one + squared(e));
        case Fn::Asin: return a / call(Fn::Sqrt, {one - squared(x)});
        case Fn::Acos: return -(a / call(Fn::Sqrt, {one - squared(x)}));
        case Fn::Atan: return a / (one + squared(x));
        case Fn::Sinh: return a * call(Fn::Cosh, {x});
        case Fn::Cosh: return a * call(Fn::Sinh, {x});
        case Fn::Tanh: return a * (one - squared(e));
        case Fn::Asinh: return a / call(Fn::Sqrt, {squared(x) + one});
        case Fn::Acosh: return a / call(Fn::Sqrt, {squared(x) - one});
        case Fn::Atanh: return a / (one - squared(x));
        case Fn::Erf: return a * (number(2 / std::sqrt(std::numbers::pi), a) * call(Fn::Exp, {-squared(x)}));
        default: return {};  // steps: sign, floor, ceil, round, trunc
    }
}

// Where one of two that are compared is a constant, none is shared with it: relu has 0 at 0.
Expr share_of_larger(const Expr& mine, const Expr& other, const Expr& a, bool largest) {
    const Expr zero = number(0, a), wins = largest ? gt(mine, other) : lt(mine, other);
    if (other.is(ExprKind::Const) || mine.is(ExprKind::Const)) return select(wins, a, zero);
    return select(wins, a, select(eq(mine, other), a * number(0.5, a), zero));
}

bool vanishes(const Expr& e) { return e.is(ExprKind::Const) && is_float(e.dtype()) && e.node().real == 0; }
bool is_guarded(const Expr& a) {
    if (a.is(ExprKind::Add)) return is_guarded(a.arg(0)) || is_guarded(a.arg(1));
    return a.is(ExprKind::Select) && (vanishes(a.arg(1)) || vanishes(a.arg(2)));
}

// f of what stands under conditions, since what f reads may be out of bounds elsewhere; f is linear.
Expr under_guards(const Expr& a, const std::function<Expr(const Expr&)>& f) {
    if (!is_guarded(a)) return f(a);
    if (a.is(ExprKind::Add)) return under_guards(a.arg(0), f) + under_guards(a.arg(1), f);
    const Expr zero = number(0, a);
    if (vanishes(a.arg(2))) return select(a.arg(0), under_guards(a.arg(1), f), zero);
    return select(a.arg(0), zero, under_guards(a.arg(2), f));
}

class Derivation {
  public:
    Derivation(const std::function<bool(int)>& wanted) : wanted_(wanted) {}

    // Everything under `root`, which stands in the scope of `axes`.
    void back(const Expr& root, const Expr& seed, const std::vector<ReduceAxis>& axes) {
        if (!reads_wanted(root)) return;
        std::vector<Expr> order;
        std::unordered_map<const ExprNode*, std::optional<Expr>> arrived;
        list(root, order, arrived);
        arrived[root.get()] = seed;
        for (size_t i = order.size(); i-- > 0;) {
            const Expr e = order[i];
            const auto a = arrived[e.get()];
            if (!a) continue;
            auto give = [&](const Expr& to, const Expr& part) {
                if (!reads_wanted(to)) return;
                auto& sum = arrived[to.get()];
                sum = sum ? *sum + part : part;
            };
            if (e.is(ExprKind::Load))
                found_.push_back({e, *a, axes});
            else if (e.is(ExprKind::Reduce))
                through_reduce(e, *a, axes);
            else
                through(e, *a, give);
        }
    }

    std::vector<Reached> take() { return std::move(found_); }

  private:
    using Give = std::function<void(const Expr&, const Expr&)>;

    // Whether a float computed here depends on a wanted element; what is only compared or indexed with does not count.
    bool reads_wanted(const Expr& e) {
        if (!is_float(e.dtype())) return false;
        if (e.is(ExprKind::Load)) return wanted_(e.node().slot);
        if (auto known = reads_.find(e.get()); known != reads_.end()) return known->second;
        bool any = false;
        for (size_t i = e.is(ExprKind::Select) ? 1 : 0; i < e.args().size(); ++i) any |= reads_wanted(e.arg(i));
        kept_.push_back(e);
        return reads_[e.get()] = any;
    }

    // The nodes of one scope, arguments first. A reduction's argument is in a scope of its own.
    void list(const Expr& e, std::vector<Expr>& order,
              std::unordered_map<const ExprNode*, std::optional<Expr>>& arrived) {
        if (!reads_wanted(e) || !arrived.emplace(e.get(), std::nullopt).second) return;
        if (!e.is(ExprKind::Reduce) && !e.is(ExprKind::Load))
            for (size_t i = e.is(ExprKind::Select) ? 1 : 0; i < e.args().size(); ++i) list(e.arg(i), order, arrived);
        order.push_back(e);
    }

    void through(const Expr& e, const Expr& a, const Give& give) {
        if (is_guarded(a)) {
            if (a.is(ExprKind::Add)) return through(e, a.arg(0), give), through(e, a.arg(1), give);
            const bool then = vanishes(a.arg(2));
            return through(e, a.arg(then ? 1 : 2), [&](const Expr& to, const Expr& part) {
                const Expr nothing = number(0, part);
                give(to, then ? select(a.arg(0), part, nothing) : select(a.arg(0), nothing, part));
            });
        }
        const Expr zero = number(0, a), one = number(1, a);
        auto x = [&](size_t i) -> const Expr& { return e.arg(i); };
        switch (e.kind()) {
            case ExprKind::Add: give(x(0), a), give(x(1), a); break;
            case ExprKind::Sub: give(x(0), a), give(x(1), -a); break;
            case ExprKind::Neg: give(x(0), -a); break;
            case ExprKind::Mul: give(x(0), a * x(1)), give(x(1), a * x(0)); break;
            case ExprKind::Div:
                if (auto exponential = exponent_of_sigmoid(e)) {
                    give(exponential->arg(0), -(a * (e * (one - e))));
                    break;
                }
                give(x(0), a / x(1));
                give(x(1), -(a * e / x(1)));
                break;
            case ExprKind::Min:
            case ExprKind::Max:
                give(x(0), share_of_larger(x(0), x(1), a, e.is(ExprKind::Max)));
                give(x(1), share_of_larger(x(1), x(0), a, e.is(ExprKind::Max)));
                break;
            case ExprKind::Pow: {
                give(x(0), select(eq(x(1), zero), zero, a * (x(1) * pow(x(0), x(1) - one))));
                const Expr at_zero = logical_and(eq(x(0), zero), ge(x(1), zero));
                give(x(1), select(at_zero, zero, a * (e * call(Fn::Log, {x(0)}))));
                break;
            }
            case ExprKind::Mod: give(x(0), a), give(x(1), -(a * call(Fn::Floor, {x(0) / x(1)}))); break;
            case ExprKind::Rem: give(x(0), a), give(x(1), -(a * call(Fn::Trunc, {x(0) / x(1)}))); break;
            case ExprKind::Select:
                give(x(1), select(x(0), a, zero));
                give(x(2), select(x(0), zero, a));
                break;
            case ExprKind::Cast:
            case ExprKind::CastSaturate:
                if (is_float(x(0).dtype())) give(x(0), cast(a, x(0).dtype()));
                break;
            case ExprKind::Call:
                if (e.node().fn == Fn::Atan2) {
                    const Expr by = squared(x(0)) + squared(x(1));
                    give(x(0), a * (x(1) / by)), give(x(1), -(a * (x(0) / by)));
                } else if (auto part = through_call(e, a)) {
                    give(x(0), *part);
                }
                break;
            default: break;
        }
    }

    void through_reduce(const Expr& e, const Expr& a, const std::vector<ReduceAxis>& outer) {
        // Its axes are opened under names of their own, since the reduction itself may stand in the adjoint.
        std::vector<ReduceAxis> axes = outer, others;
        Bindings opened, again;
        for (const ReduceAxis& axis : e.node().axes) {
            auto renamed = [&](const Bindings& earlier) {
                return ReduceAxis{index_var(fresh(), axis.extent.as_int()), substitute(axis.extent, earlier)};
            };
            axes.push_back(renamed(opened));
            others.push_back(renamed(again));
            opened.insert_or_assign(axis.var.node().name, axes.back().var);
            again.insert_or_assign(axis.var.node().name, others.back().var);
        }
        const Expr value = substitute(e.arg(0), opened), zero = number(0, a);
        switch (e.node().reduce_op) {
            case ReduceOp::Sum: return back(value, a, axes);
            case ReduceOp::Prod: {
                Expr same = int_const(1, DType::boolean);
                for (size_t i = 0; i < others.size(); ++i)
                    same = logical_and(same, eq(others[i].var, axes[outer.size() + i].var));
                const Expr rest = select(same, number(1, a), substitute(e.arg(0), again));
                return back(value, under_guards(a, [&](const Expr& x) { return x * prod(others, rest); }), axes);
            }
            case ReduceOp::Min:
            case ReduceOp::Max: {
                const Expr ties = sum(others, select(eq(substitute(e.arg(0), again), e), number(1, a), zero));
                const Expr best = eq(value, e);
                return back(value, under_guards(a, [&](const Expr& x) { return select(best, x / ties, zero); }), axes);
            }
        }
    }

    std::string fresh() { return "s" + std::to_string(next_++); }

    const std::function<bool(int)>& wanted_;
    std::unordered_map<const ExprNode*, bool> reads_;
    std::vector<Expr> kept_;  // so that addresses stay theirs
    std::vector<Reached> found_;
    int next_ = 0;
};

}  // namespace

std::vector<Reached> derive_body(const Expr& body, const Expr& seed, const std::function<bool(int slot)>& wanted) {
    Derivation derivation(wanted);
    derivation.back(body, seed, {});
    return derivation.take();
}

}  // namespace tessera
