#include "kernel/from_tile/unwrap_lanes.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::from_tile_detail {
namespace {

// mod(start + lane, size), or rem: by one element further in each lane.
struct Wrapped {
    Expr whole, start, size;
    Expr first() const { return whole.is(ExprKind::Mod) ? mod(start, size) : rem(start, size); }  // in lane 0
};

// Comparisons of what grows evenly from lane to lane: they hold in all lanes if they do in the first and in the last.
std::vector<Expr> comparisons_in(const Stmt& body, const Expr& lane) {
    std::vector<Expr> found;
    visit_exprs(body, [&](const Expr& expr) {
        visit(expr, [&](const Expr& e) {
            if ((!e.is(ExprKind::Lt) && !e.is(ExprKind::Le)) || e.arg(0).dtype() != DType::i64) return;
            if (!depends_on(e, lane) || !step_of(e.arg(0), lane) || !step_of(e.arg(1), lane)) return;
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

void unwrap_lanes(Kernel& kernel) {
    int names = 0;
    kernel.body = mutate(kernel.body, [&](const Stmt& s) -> Stmt {
        const For* loop = s->as<For>();
        if (!loop || loop->kind != LoopKind::Vector) return s;
        const std::vector<Wrapped> wrapped = wrapped_in(loop->body, loop->var);
        const std::vector<Expr> comparisons = comparisons_in(loop->body, loop->var);
        const std::optional<int64_t> width = loop->extent.as_int();
        if ((wrapped.empty() && comparisons.empty()) || !width) return s;
        const Expr lane = index_var(fmt::format("lane{}", names++), width);
        std::vector<Expr> conditions;
        for (const Wrapped& w : wrapped) {
            conditions.push_back(lt(w.first() + Expr(*width - 1), w.size));
            if (w.whole.is(ExprKind::Rem)) conditions.push_back(le(Expr(0), w.start));
        }
        for (const Expr& c : comparisons)
            for (int64_t at : {int64_t{0}, *width - 1})
                conditions.push_back(substitute(c, {{loop->var.node().name, Expr(at)}}));
        Expr together = conditions[0];
        for (size_t c = 1; c < conditions.size(); ++c) together = logical_and(together, conditions[c]);
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
        return if_then(together,
                       for_loop({.var = lane, .extent = loop->extent, .kind = LoopKind::Vector, .body = straight}), s);
    });
}

}  // namespace tessera::from_tile_detail
