#include "discover/check/check_meaning.h"

#include <fmt/format.h>

#include <cmath>

#include "discover/check/check_types.h"

namespace tessera::checker {
namespace {

Fraction fraction(__int128 above, __int128 below) {
    if (below < 0) above = -above, below = -below;
    __int128 a = above < 0 ? -above : above, b = below;
    while (b) std::swap(a %= b, b);
    if (a > 1) above /= a, below /= a;
    if (above > INT64_MAX || above < -INT64_MAX || below > INT64_MAX) throw Refused{"a number is too large"};
    return {static_cast<int64_t>(above), static_cast<int64_t>(below)};
}

std::optional<Fraction> exactly(double value) {
    if (!std::isfinite(value)) throw Refused{"an infinite constant"};
    int64_t below = 1;
    for (; value != std::floor(value) && below < (int64_t{1} << 40); below *= 2) value *= 2;
    if (value != std::floor(value) || std::fabs(value) > 0x1p40) return {};
    return fraction(static_cast<int64_t>(value), below);
}

bool on_indices(const Expr& condition) {
    bool floats = condition.node().reads;
    visit(condition, [&](const Expr& e) { floats = floats || is_float(e.dtype()); });
    return !floats;
}

Items inverse(Items below) {
    Item out;
    if (below.size() == 1 && below[0].variables.empty() && below[0].where.empty()) {
        out.scale = fraction(below[0].scale.below, below[0].scale.above);
        Items made{out};
        for (Part& p : below[0].parts) {
            if (p.what == "inverse")  // 1 / (1 / a) = a
                made = Meaning::product(made, p.of[0]);
            else
                for (Item& item : made) item.parts.push_back({"inverse", {}, {{{{}, {}, {}, {p}}}}});
        }
        return made;
    } else {
        out.parts.push_back({"inverse", {}, {std::move(below)}});
    }
    return {out};
}

}  // namespace

Fraction operator*(Fraction a, Fraction b) {
    return fraction(__int128{a.above} * b.above, __int128{a.below} * b.below);
}
Fraction operator+(Fraction a, Fraction b) {
    return fraction(__int128{a.above} * b.below + __int128{b.above} * a.below, __int128{a.below} * b.below);
}

Items Meaning::of(const Expr& e) {
    const bool real = is_float(e.dtype());
    switch (e.kind()) {
        case ExprKind::Const: {
            std::optional<Fraction> c = real ? exactly(e.node().real) : Fraction{e.node().integer, 1};
            if (!c) return function(fmt::format("{:a}", e.node().real), {});  // nothing is known of it
            return c->above ? Items{{*c, {}, {}, {}}} : Items{};
        }
        case ExprKind::Load: {
            Part p{"x" + std::to_string(e.node().slot), {}, {}};
            for (const Expr& i : e.args()) p.at.push_back(names_.read(named(i)));
            return {{{}, {}, {}, {std::move(p)}}};
        }
        case ExprKind::Add:
        case ExprKind::Sub: {
            if (!real) break;
            Items out = of(e.arg(0));
            append(out, e.is(ExprKind::Sub) ? opposite(of(e.arg(1))) : of(e.arg(1)));
            return out;
        }
        case ExprKind::Neg: return opposite(of(e.arg(0)));
        case ExprKind::Mul: {
            if (!real) break;
            Items left = of(e.arg(0));
            return product(left, of(e.arg(1)));
        }
        case ExprKind::Div: {
            if (!real) break;
            Items left = of(e.arg(0));
            return product(left, inverse(of(e.arg(1))));
        }
        case ExprKind::Pow: {
            const Expr& n = e.arg(1);
            bool small = n.is(ExprKind::Const) && is_float(n.dtype()) && (n.node().real == 2 || n.node().real == 3);
            if (!small) return function("pow", e.args());
            Items out = of(e.arg(0));
            for (double i = 1; i < n.node().real; ++i) out = product(out, of(e.arg(0)));
            return out;
        }
        case ExprKind::Select: {
            if (!on_indices(e.arg(0))) {  // c * a + b - c * b
                Items c = truth(e.arg(0)), b = of(e.arg(2)), out = product(c, of(e.arg(1)));
                append(out, b);
                c = truth(e.arg(0));
                append(out, opposite(product(c, of(e.arg(2)))));
                return out;
            }
            Items out;
            for (bool holds : {true, false})
                for (const Conjunction& c : names_.read(named(e.arg(0)), holds))
                    for (Item& item : of(e.arg(holds ? 1 : 2))) {
                        append(item.where, c);
                        out.push_back(std::move(item));
                    }
            return out;
        }
        case ExprKind::Cast:
            if (real && e.arg(0).dtype() == DType::i64 && !e.arg(0).node().reads) {
                Items out;
                // The order of products is the prover's: sums are small, so any order will do that it can name.
                for (const auto& [atoms, c] : names_.read(named(e.arg(0)))) {
                    Item item{{c, 1}, {}, {}, {}};
                    for (int a : atoms) item.parts.push_back({"number", {Whole{{{a}, 1}}}, {}});
                    out.push_back(std::move(item));
                }
                return out;
            }
            if (kWideFloats.has(e.dtype()) && kWideFloats.has(e.arg(0).dtype())) {
                if (keeps_every_number(e.arg(0).dtype(), e.dtype())) return of(e.arg(0));
                return function(fmt::format("rounded to {}", dtype_name(e.dtype())), e.args());
            }
            break;
        case ExprKind::Call: return function(std::string(fn_name(e.node().fn)), e.args());
        case ExprKind::Min:
        case ExprKind::Max:
            if (!real) break;
            return extreme(e, e.is(ExprKind::Max));
        case ExprKind::Reduce: {
            if (!real || e.node().reduce_op == ReduceOp::Prod) break;
            if (e.node().reduce_op != ReduceOp::Sum) return extreme(e, e.node().reduce_op == ReduceOp::Max);
            Item outer;
            const Bindings before = renamed_;
            open(e, outer);
            Items out = of(e.arg(0));
            renamed_ = before;
            for (Item& item : out) {
                append(item.variables, outer.variables);
                append(item.where, outer.where);
            }
            return out;
        }
        default: break;
    }
    throw Refused{"an expression without a law"};
}

Items Meaning::product(const Items& a, const Items& b) {
    Items out;
    for (const Item& x : a)
        for (const Item& y : b) {
            out.push_back(x);
            out.back().scale = x.scale * y.scale;
            append(out.back().variables, y.variables);
            append(out.back().where, y.where);
            append(out.back().parts, y.parts);
        }
    if (out.size() > 5000) throw Refused{"too many terms"};
    return out;
}

Items Meaning::opposite(Items items) {
    for (Item& i : items) i.scale.above = -i.scale.above;
    return items;
}

// A condition on values as 1 or 0, of which no more is known than what it compares.
Items Meaning::truth(const Expr& c) {
    if (c.is(ExprKind::Lt)) return function("less", c.args());
    if (c.is(ExprKind::Le)) return function("at_most", c.args());
    if (c.is(ExprKind::Eq)) return function("equal", c.args());
    if (c.is(ExprKind::Call)) return function(std::string(fn_name(c.node().fn)), c.args());
    if (c.is(ExprKind::And)) {
        Items left = truth(c.arg(0));
        return product(left, truth(c.arg(1)));
    }
    if (!c.is(ExprKind::Not)) throw Refused{"a condition without a law"};
    Items out{Item{}};
    append(out, opposite(truth(c.arg(0))));
    return out;
}

// Declares a reduction's variables and says what they run over.
void Meaning::open(const Expr& reduction, Item& item) {
    std::vector<Whole> extents;
    for (const ReduceAxis& a : reduction.node().axes) extents.push_back(names_.read(named(index_bound(a.extent))));
    for (size_t i = 0; i < extents.size(); ++i) {
        std::string name = "_v" + std::to_string(++last_);
        int v = names_.declare(name, Names::Kind::Variable);
        item.variables.push_back(v);
        item.where.push_back({{{v}, 1}});
        item.where.push_back(plus(plus(extents[i], constant_whole(-1)), {{{v}, 1}}, -1));
        renamed_.insert_or_assign(reduction.node().axes[i].var.node().name, index_var(name, std::nullopt));
    }
}

Items Meaning::function(std::string name, const std::vector<Expr>& args) {
    Part p{std::move(name), {}, {}};
    for (const Expr& a : args) p.of.push_back(of(a));
    return {{{}, {}, {}, {std::move(p)}}};
}

Items Meaning::extreme(const Expr& e, bool largest) {
    Items points;
    collect(e, largest, {}, points);
    return {{{}, {}, {}, {Part{largest ? "max" : "min", {}, {std::move(points)}}}}};
}

void Meaning::collect(const Expr& e, bool largest, const Item& here, Items& points) {
    if (e.is(ExprKind::Const) && is_float(e.dtype()) && std::isinf(e.node().real) && (e.node().real < 0) == largest)
        return;
    if (e.is(ExprKind::Select) && on_indices(e.arg(0))) {
        for (bool holds : {true, false})
            for (const Conjunction& c : names_.read(named(e.arg(0)), holds)) {
                Item inner = here;
                append(inner.where, c);
                collect(e.arg(holds ? 1 : 2), largest, inner, points);
            }
    } else if (e.is(largest ? ExprKind::Max : ExprKind::Min)) {
        for (const Expr& a : e.args()) collect(a, largest, here, points);
    } else if (e.is(ExprKind::Reduce) && e.node().reduce_op == (largest ? ReduceOp::Max : ReduceOp::Min)) {
        Item inner = here;
        const Bindings before = renamed_;
        open(e, inner);
        collect(e.arg(0), largest, inner, points);
        renamed_ = before;
    } else {
        Item point = here;
        point.parts = {{"point", {}, {of(e)}}};
        points.push_back(std::move(point));
    }
}

}  // namespace tessera::checker
