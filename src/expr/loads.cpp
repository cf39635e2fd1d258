// Which variables and inputs an expression depends on, and how its loads are replaced.
#include <algorithm>

#include "expr/expr.h"

namespace tessera {

bool depends_on(const Expr& e, const Expr& var) {
    bool found = false;
    visit(e, [&](const Expr& x) { found |= x == var; });
    return found;
}

std::optional<Expr> step_of(const Expr& e, const Expr& var) {
    if (!depends_on(e, var)) return Expr(0);
    Expr step = substitute(e, {{var.node().name, var + 1}}) - e;
    if (depends_on(step, var)) return std::nullopt;
    return step;
}

std::vector<int> loaded_slots(const Expr& e) {
    std::vector<int> out;
    visit(e, [&](const Expr& x) {
        if (x.is(ExprKind::Load) && std::find(out.begin(), out.end(), x.node().slot) == out.end())
            out.push_back(x.node().slot);
    });
    return out;
}

namespace {

Expr mapped(const Expr& e, const std::function<Expr(const Expr&)>& f, std::unordered_map<const ExprNode*, Expr>& done) {
    if (!e.node().reads) return e;
    if (auto found = done.find(e.get()); found != done.end()) return found->second;
    std::vector<Expr> args;
    for (const Expr& a : e.args()) args.push_back(mapped(a, f, done));
    Expr made = e;
    if (e.is(ExprKind::Reduce)) {
        std::vector<ReduceAxis> axes;
        for (const ReduceAxis& a : e.node().axes) axes.push_back({a.var, mapped(a.extent, f, done)});
        made = reduce(e.node().reduce_op, std::move(axes), args[0]);
    } else if (e.is(ExprKind::Load)) {
        made = f(load(e.node().slot, e.dtype(), std::move(args)));
    } else {
        made = with_args(e, std::move(args));
    }
    done.emplace(e.get(), made);
    return made;
}

}  // namespace

Expr map_loads(const Expr& e, const std::function<Expr(const Expr& load)>& f) {
    std::unordered_map<const ExprNode*, Expr> done;
    return mapped(e, f, done);
}

}  // namespace tessera
