#include <algorithm>

#include "kernel/ir/regions.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

struct Known {
    Extents running;
    std::vector<Expr> facts;  // conditions that hold here
};

bool holds(const Expr& condition, const Known& known) {
    if (always(condition, known.running)) return true;
    return std::any_of(known.facts.begin(), known.facts.end(), [&](const Expr& f) { return f.same(condition); });
}

Expr simplified(const Expr& e, const Known& known) {
    return rewrite(e, [&](const Expr& x) -> Expr {
        if (x.is(ExprKind::Select)) {
            if (never(x.arg(0), known.running)) return x.arg(2);
            Expr rest = int_const(1, DType::boolean);
            for (const Expr& c : conjuncts(x.arg(0)))
                if (!holds(c, known)) rest = logical_and(rest, c);
            return select(rest, x.arg(1), x.arg(2));
        }
        if ((x.is(ExprKind::Min) || x.is(ExprKind::Max)) && x.dtype() == DType::i64)
            for (const Expr& arm : x.args()) {
                bool smallest = x.is(ExprKind::Min);
                if (std::all_of(x.args().begin(), x.args().end(), [&](const Expr& other) {
                        return other.same(arm) || always(smallest ? le(arm, other) : le(other, arm), known.running);
                    })) {
                    // A number says how large a loop's variable gets, which the other arm may not.
                    Bounds left = bounds(arm), all = bounds(x);
                    if (left.low == all.low && left.high == all.high) return arm;
                }
            }
        return x;
    });
}

Stmt simplified(const Stmt& s, const Known& known) {
    if (!s) return s;
    if (const For* loop = s->as<For>()) {
        For copy = *loop;
        copy.extent = simplified(loop->extent, known);
        // What the variable says of its bounds, the extent must show.
        std::optional<int64_t> most = bounds(copy.extent).high, claimed = bounds(copy.var).high;
        if (claimed && (!most || *most > *claimed + 1)) copy.extent = min(copy.extent, *claimed + 1);
        // A variable says its bounds; what it runs over may be known better now.
        std::optional<int64_t> constant = copy.extent.as_int();
        Stmt body = loop->body;
        if (constant && bounds(copy.var).high != std::max<int64_t>(*constant - 1, 0)) {
            copy.var = index_var(loop->var.node().name, constant);
            body = substitute(body, {{loop->var.node().name, copy.var}});
        }
        Known inside = known;
        inside.running.insert_or_assign(copy.var.node().name, copy.extent);
        copy.body = simplified(body, inside);
        return copy.body ? for_loop(std::move(copy)) : nullptr;
    }
    if (const Seq* list = s->as<Seq>()) {
        std::vector<Stmt> stmts;
        for (const Stmt& each : list->stmts) stmts.push_back(simplified(each, known));
        return seq(std::move(stmts));
    }
    if (const If* branch = s->as<If>()) {
        Expr rest = int_const(1, DType::boolean);
        Known inside = known;
        for (const Expr& c : conjuncts(simplified(branch->condition, known))) {
            if (holds(c, known)) continue;
            if (never(c, known.running)) return simplified(branch->otherwise, known);
            rest = logical_and(rest, c);
            inside.facts.push_back(c);
        }
        return if_then(rest, simplified(branch->then, inside), simplified(branch->otherwise, known));
    }
    if (const Alloc* a = s->as<Alloc>()) {
        Stmt body = simplified(a->body, known);
        return body ? alloc(a->buffer, std::move(body)) : nullptr;
    }
    return map_exprs(s, [&](const Expr& e) { return simplified(e, known); });
}

}  // namespace

void simplify_kernel(Kernel& kernel) { kernel.body = simplified(kernel.body, {}); }

}  // namespace tessera
