#include "kernel/from_tile/unwrap_lanes.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernel/ir/multiples.h"

namespace tessera::from_tile_detail {
namespace {

// mod(start + lane, size), or rem: by one element further in each lane. Or the quotient: the same in all lanes.
struct Wrapped {
    Expr whole, start, size;
    bool rounds_down() const { return whole.is(ExprKind::Mod) || whole.is(ExprKind::FloorDiv); }
    Expr first() const { return rounds_down() ? mod(start, size) : rem(start, size); }  // in lane 0
    Expr in_lane(const Expr& lane) const {
        if (whole.is(ExprKind::Mod) || whole.is(ExprKind::Rem)) return first() + lane;
        return rounds_down() ? floor_div(start, size) : start / size;
    }
    // No vector of that width reaches over the end.
    bool fits(int64_t width) const { return std::gcd(divisor_of(start), divisor_of(size)) % width == 0; }
};

// Whether start + lane < end is the same in all lanes.
bool is_same_for_all(const Expr& comparison, const Expr& lane, int64_t width) {
    const auto at = [&](int64_t place) { return substitute(comparison, {{lane.node().name, Expr(place)}}); };
    if (at(0).same(at(width - 1))) return true;
    const auto step = step_of(comparison.arg(0), lane);
    if (!comparison.is(ExprKind::Lt) || !step || !step->is_int(1) || depends_on(comparison.arg(1), lane)) return false;
    const Expr start = substitute(comparison.arg(0), {{lane.node().name, Expr(0)}});
    return std::gcd(divisor_of(start), divisor_of(comparison.arg(1))) % width == 0;
}

// Where nobody vouches for the program, steps are small: others may overflow on the way from the first lane to the
// last.
bool grows_evenly(const Expr& e, const Expr& lane, bool bounded) {
    const std::optional<Expr> step = step_of(e, lane);
    constexpr int64_t kLargest = 1 << 20;
    const auto known = step ? step->as_int() : std::nullopt;
    return step && (!bounded || (known && *known >= -kLargest && *known <= kLargest));
}

// Comparisons of what grows evenly from lane to lane: they hold in all lanes if they do in the first and in the last.
std::vector<Expr> comparisons_in(const Stmt& body, const Expr& lane, bool bounded) {
    std::vector<Expr> found;
    visit_exprs(body, [&](const Expr& expr) {
        visit(expr, [&](const Expr& e) {
            if ((!e.is(ExprKind::Lt) && !e.is(ExprKind::Le)) || e.arg(0).dtype() != DType::i64) return;
            if (!depends_on(e, lane) || !grows_evenly(e.arg(0), lane, bounded) ||
                !grows_evenly(e.arg(1), lane, bounded))
                return;
            if (std::none_of(found.begin(), found.end(), [&](const Expr& f) { return f.same(e); })) found.push_back(e);
        });
    });
    return found;
}

std::vector<Wrapped> wrapped_in(const Stmt& body, const Expr& lane) {
    std::vector<Wrapped> found;
    visit_exprs(body, [&](const Expr& expr) {
        visit(expr, [&](const Expr& e) {
            const bool divides =
                e.is(ExprKind::Mod) || e.is(ExprKind::Rem) || e.is(ExprKind::Div) || e.is(ExprKind::FloorDiv);
            if (!divides || e.dtype() != DType::i64 || !depends_on(e.arg(0), lane)) return;
            const std::optional<Expr> step = step_of(e.arg(0), lane);
            if (!step || !step->is_int(1) || depends_on(e.arg(1), lane)) return;
            if (std::any_of(found.begin(), found.end(), [&](const Wrapped& w) { return w.whole.same(e); })) return;
            found.push_back({e, substitute(e.arg(0), {{lane.node().name, Expr(0)}}), e.arg(1)});
        });
    });
    return found;
}

struct NoneHolds {
    Expr first;  // the comparison in lane 0
    Stmt loop;   // where it does not hold
};
size_t nodes_in(const Stmt& body) {
    size_t count = 0;
    visit_exprs(body, [&](const Expr& expr) { visit(expr, [&](const Expr&) { ++count; }); });
    return count;
}
Stmt without(const Stmt& body, const Expr& comparison) {
    const Stmt made = map_exprs(body, [&](const Expr& e) {
        return rewrite(e,
                       [&](const Expr& part) { return part.same(comparison) ? int_const(0, DType::boolean) : part; });
    });
    return mutate(made, [](const Stmt& s) {
        const If* branch = s->as<If>();
        return branch ? if_then(branch->condition, branch->then, branch->otherwise) : s;
    });
}
// Of the comparisons, that which spares most: masks of what a tile has beyond its array. `same`: the only one is the
// same in all lanes.
std::optional<NoneHolds> none_holds(const For& loop, const std::vector<Expr>& comparisons, bool same, int& names) {
    std::optional<NoneHolds> best;
    size_t fewest = same ? SIZE_MAX : nodes_in(loop.body) * 2 / 3;
    for (const Expr& c : comparisons) {
        const auto step = step_of(c.arg(0), loop.var);
        const bool further = step && bounds(*step).low.value_or(-1) >= 0 && !depends_on(c.arg(1), loop.var);
        if (!further && !same) continue;
        For masked = loop;
        masked.body = without(loop.body, c);
        const size_t left = masked.body ? nodes_in(masked.body) : 0;
        if (left >= fewest) continue;
        fewest = left;
        const Expr first = substitute(c, {{loop.var.node().name, Expr(0)}});
        best = NoneHolds{first, masked.body ? make_stmt(std::move(masked)) : nullptr};
    }
    if (!best || !best->loop) return best;
    For renamed = *best->loop->as<For>();
    renamed.var = index_var(fmt::format("lane{}", names++), loop.extent.as_int());
    renamed.body = substitute(renamed.body, {{loop.var.node().name, renamed.var}});
    best->loop = make_stmt(std::move(renamed));
    return best;
}

Stmt unwrapped(const Stmt& s, bool bounded, int& names, int again);

// The loop with what holds in all lanes and what lies together put in: what that tells of further places is put in,
// too.
Stmt straight_loop(const For& loop, const std::vector<Wrapped>& wrapped, const std::vector<Expr>& comparisons,
                   bool bounded, int& names, int again) {
    const Expr lane = index_var(fmt::format("lane{}", names++), loop.extent.as_int());
    Stmt body = map_exprs(loop.body, [&](const Expr& e) {
        const Expr made = rewrite(e, [&](const Expr& part) {
            for (const Wrapped& w : wrapped)
                if (part.same(w.whole)) return w.in_lane(loop.var);
            for (const Expr& c : comparisons)
                if (part.same(c)) return int_const(1, DType::boolean);
            return part;
        });
        return substitute(made, {{loop.var.node().name, lane}});
    });
    const Stmt made = for_loop({.var = lane, .extent = loop.extent, .kind = LoopKind::Vector, .body = std::move(body)});
    return again > 0 && !wrapped.empty() ? unwrapped(made, bounded, names, again - 1) : made;
}

Stmt unwrapped(const Stmt& s, bool bounded, int& names, int again) {
    const For* loop = s->as<For>();
    if (!loop || loop->kind != LoopKind::Vector) return s;
    const std::vector<Wrapped> wrapped = wrapped_in(loop->body, loop->var);
    const std::vector<Expr> comparisons = comparisons_in(loop->body, loop->var, bounded);
    const std::optional<int64_t> width = loop->extent.as_int();
    if ((wrapped.empty() && comparisons.empty()) || !width) return s;
    std::vector<Expr> conditions;
    for (const Wrapped& w : wrapped) {
        if (!w.fits(*width)) conditions.push_back(lt(w.first() + Expr(*width - 1), w.size));
        if (!w.rounds_down()) conditions.push_back(le(Expr(0), w.start));
    }
    bool same = wrapped.empty() && comparisons.size() == 1;
    for (const Expr& c : comparisons) {
        conditions.push_back(substitute(c, {{loop->var.node().name, Expr(0)}}));
        if (is_same_for_all(c, loop->var, *width)) continue;
        conditions.push_back(substitute(c, {{loop->var.node().name, Expr(*width - 1)}}));
        same = false;
    }
    Expr together = int_const(1, DType::boolean);
    for (const Expr& c : conditions) together = logical_and(together, c);
    if (together.is(ExprKind::Const) && !together.node().integer) return s;
    const Stmt straight = straight_loop(*loop, wrapped, comparisons, bounded, names, again);
    if (together.is(ExprKind::Const)) return straight;
    // What does not hold in the first lane holds in none, where the lanes after it go further.
    const auto none = none_holds(*loop, comparisons, same, names);
    if (!none) return if_then(together, straight, s);
    if (same) return if_then(together, straight, none->loop);
    const Stmt otherwise = if_then(none->first, s, none->loop);
    return if_then(together, straight, otherwise);
}

}  // namespace

void unwrap_lanes(Kernel& kernel, bool bounded) {
    int names = 0;
    kernel.body = mutate(kernel.body, [&](const Stmt& s) { return unwrapped(s, bounded, names, 1); });
}

}  // namespace tessera::from_tile_detail
