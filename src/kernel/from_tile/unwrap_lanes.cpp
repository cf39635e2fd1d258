#include "kernel/from_tile/unwrap_lanes.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernel/ir/multiples.h"

namespace tessera::from_tile_detail {
namespace {

// mod(start + lane, size), or rem: by one element further in each lane.
struct Wrapped {
    Expr whole, start, size;
    Expr first() const { return whole.is(ExprKind::Mod) ? mod(start, size) : rem(start, size); }  // in lane 0
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
            if ((!e.is(ExprKind::Mod) && !e.is(ExprKind::Rem)) || e.dtype() != DType::i64 ||
                !depends_on(e.arg(0), lane))
                return;
            const std::optional<Expr> step = step_of(e.arg(0), lane);
            if (!step || !step->is_int(1) || depends_on(e.arg(1), lane)) return;
            if (std::any_of(found.begin(), found.end(), [&](const Wrapped& w) { return w.whole.same(e); })) return;
            found.push_back({e, substitute(e.arg(0), {{lane.node().name, Expr(0)}}), e.arg(1)});
        });
    });
    return found;
}

}  // namespace

void unwrap_lanes(Kernel& kernel, bool bounded) {
    int names = 0;
    kernel.body = mutate(kernel.body, [&](const Stmt& s) -> Stmt {
        const For* loop = s->as<For>();
        if (!loop || loop->kind != LoopKind::Vector) return s;
        const std::vector<Wrapped> wrapped = wrapped_in(loop->body, loop->var);
        const std::vector<Expr> comparisons = comparisons_in(loop->body, loop->var, bounded);
        const std::optional<int64_t> width = loop->extent.as_int();
        if ((wrapped.empty() && comparisons.empty()) || !width) return s;
        const Expr lane = index_var(fmt::format("lane{}", names++), width);
        std::vector<Expr> conditions;
        for (const Wrapped& w : wrapped) {
            if (!w.fits(*width)) conditions.push_back(lt(w.first() + Expr(*width - 1), w.size));
            if (w.whole.is(ExprKind::Rem)) conditions.push_back(le(Expr(0), w.start));
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
        const Stmt straight = map_exprs(loop->body, [&](const Expr& e) {
            const Expr made = rewrite(e, [&](const Expr& part) {
                for (const Wrapped& w : wrapped)
                    if (part.same(w.whole)) return w.first() + loop->var;
                for (const Expr& c : comparisons)
                    if (part.same(c)) return int_const(1, DType::boolean);
                return part;
            });
            return substitute(made, {{loop->var.node().name, lane}});
        });
        // Where one condition is the same in all lanes, it does not hold in any of them otherwise.
        Stmt otherwise = s;
        if (same) {
            const Stmt none = map_exprs(loop->body, [&](const Expr& e) {
                return rewrite(e, [&](const Expr& part) {
                    return part.same(comparisons[0]) ? int_const(0, DType::boolean) : part;
                });
            });
            For masked = *loop;
            masked.body = none;
            otherwise = make_stmt(std::move(masked));
        }
        if (together.is(ExprKind::Const) && !together.node().integer) return s;
        if (together.is(ExprKind::Const))
            return for_loop({.var = lane, .extent = loop->extent, .kind = LoopKind::Vector, .body = straight});
        return if_then(together,
                       for_loop({.var = lane, .extent = loop->extent, .kind = LoopKind::Vector, .body = straight}),
                       otherwise);
    });
}

}  // namespace tessera::from_tile_detail
