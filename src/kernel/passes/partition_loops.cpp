#include <algorithm>

#include "kernel/ir/compute.h"
#include "kernel/ir/regions.h"
#include "kernel/ir/renamed_copy.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

class Partition {
  public:
    explicit Partition(Kernel& kernel) : kernel_(kernel), copies_(kernel) {}

    Stmt apply(const Stmt& s) {
        if (!s) return s;
        if (const For* loop = s->as<For>()) {
            if (loop->notes.contains("partition")) return partitioned(*loop);
            For copy = *loop;
            copy.body = apply(loop->body);
            return for_loop(std::move(copy));
        }
        if (const Seq* list = s->as<Seq>()) {
            std::vector<Stmt> stmts;
            for (const Stmt& each : list->stmts) stmts.push_back(apply(each));
            return seq(std::move(stmts));
        }
        if (const If* branch = s->as<If>())
            return if_then(branch->condition, apply(branch->then), apply(branch->otherwise));
        if (const Alloc* a = s->as<Alloc>()) return alloc(a->buffer, apply(a->body));
        return s;
    }

  private:
    // What tells the iterations apart: conditions, and extents that are the smaller of a number and something else.
    struct Varying {
        std::vector<Expr> conditions;
        std::vector<std::pair<Expr, Expr>> minima;  // min(...), and its constant
    };

    // Chooses a store between what is read where it stores, and something else? That is there, whatever is chosen.
    bool chooses_in_place(const Store& to, const Expr& choice) const {
        bool in_place = !to.combine && choice.node().reads;
        visit(choice, [&](const Expr& e) {
            if (!e.is(ExprKind::Load)) return;
            in_place &= e.args() == to.to.indices;
            in_place &= kernel_.buffers[size_t(e.node().slot)].shape == kernel_.buffers[size_t(to.to.buffer)].shape;
        });
        return in_place;
    }

    Varying varying_in(const Stmt& body) const {
        Varying found;
        auto add = [&](const Expr& condition) {
            for (const Expr& c : conjuncts(condition))
                if (std::none_of(found.conditions.begin(), found.conditions.end(),
                                 [&](const Expr& k) { return k.same(c); }))
                    found.conditions.push_back(c);
        };
        std::vector<Expr> in_place;
        visit(body, [&](const Stmt& s) {
            if (const If* branch = s->as<If>()) add(branch->condition);
            if (const Store* to = s->as<Store>())
                visit(to->value, [&](const Expr& e) {
                    if (e.is(ExprKind::Select) && chooses_in_place(*to, e)) in_place.push_back(e);
                });
            if (const For* loop = s->as<For>())
                visit(loop->extent, [&](const Expr& e) {
                    if (e.is(ExprKind::Min) && e.args().back().as_int()) found.minima.emplace_back(e, e.args().back());
                });
        });
        visit_exprs(body, [&](const Expr& e) {
            visit(e, [&](const Expr& x) {
                if (!x.is(ExprKind::Select)) return;
                if (std::none_of(in_place.begin(), in_place.end(), [&](const Expr& e) { return e.same(x); }))
                    add(x.arg(0));
            });
        });
        return found;
    }

    static Extents loops_in(const Stmt& body) {
        Extents inner;
        visit(body, [&](const Stmt& s) {
            const For* loop = s->as<For>();
            if (!loop) return;
            std::optional<int64_t> high = bounds(loop->var).high;
            inner.insert_or_assign(loop->var.node().name, high ? Expr(*high + 1) : loop->extent);
        });
        return inner;
    }

    static Stmt assume(const Stmt& body, const std::vector<Expr>& facts,
                       const std::vector<std::pair<Expr, Expr>>& minima) {
        return map_exprs(body, [&](const Expr& e) {
            return rewrite(e, [&](const Expr& x) -> Expr {
                for (const Expr& f : facts)
                    if (x.same(f)) return int_const(1, DType::boolean);
                for (const auto& [minimum, constant] : minima)
                    if (x.same(minimum)) return constant;
                return x;
            });
        });
    }

    static Expr all_at_least(const Expr& minimum, const Expr& constant) {
        Expr condition = int_const(1, DType::boolean);
        for (const Expr& arm : minimum.args()) condition = logical_and(condition, le(constant, arm));
        return condition;
    }

    Stmt partitioned(const For& given) {
        For loop = given;
        loop.notes.erase("partition");
        bool splits = loop.kind == LoopKind::Serial;
        return splits ? in_ranges(without_idle_rounds(std::move(loop))) : in_versions(loop);
    }

    // Is `value`, where the condition does not hold, what combining leaves everything as it is with? Padding is: it
    // counts as zero in a product, whatever the other factor.
    static bool idle_without(const Expr& condition, const Expr& value, const Expr& neutral, bool sums) {
        if ((value.is(ExprKind::Mul) || is_product(value)) && sums)
            return std::any_of(value.args().begin(), value.args().end(),
                               [&](const Expr& x) { return idle_without(condition, x, neutral, sums); });
        if (!value.is(ExprKind::Select) || !value.arg(2).same(neutral)) return false;
        std::vector<Expr> all = conjuncts(value.arg(0));
        return std::any_of(all.begin(), all.end(), [&](const Expr& c) { return c.same(condition); });
    }

    // Every statement of a body combines, and nothing new unless the condition holds. What it keeps for itself does not
    // matter.
    bool idle_without(const Expr& condition, const Stmt& body) const {
        bool idle = true;
        std::vector<int> own;  // buffers
        visit(body, [&](const Stmt& s) {
            if (const Alloc* a = s->as<Alloc>()) own.push_back(a->buffer);
            if (s->as<For>() || s->as<Seq>() || s->as<Alloc>() || s->as<If>()) return;
            const Store* store = s->as<Store>();
            if (store && std::find(own.begin(), own.end(), store->to.buffer) != own.end()) return;
            idle &= store && store->combine;
            if (!idle) return;
            const Expr neutral = identity(*store->combine, kernel_.buffers[size_t(store->to.buffer)].dtype);
            idle &= idle_without(condition, store->value, neutral, *store->combine == ReduceOp::Sum);
        });
        return idle;
    }

    // A reduction leaves out the iterations that only meet padding.
    For without_idle_rounds(For loop) const {
        Extents inner = loops_in(loop.body);
        Expr begin = 0, end = loop.extent;
        std::vector<Expr> facts;
        bool narrower = false;
        for (const Expr& c : varying_in(loop.body).conditions) {
            if (!mentions(c, loop.var.node().name) || !idle_without(c, loop.body)) continue;
            // Where loops inside tell too, it is enough that it holds for some of their iterations.
            const bool for_all = !mentions_any(c, inner);
            const std::optional<Expr> some = for_all ? c : holds_for_any(c, inner);
            if (!some) continue;
            if (std::optional<Expr> upper = solve_upper(*some, loop.var))
                end = min(end, *upper);
            else if (std::optional<Expr> lower = solve_lower(*some, loop.var))
                begin = max(begin, *lower);
            else
                continue;
            narrower = true;
            if (for_all) facts.push_back(c);
        }
        if (!narrower) return loop;
        loop.body = assume(loop.body, facts, {});
        std::optional<int64_t> had = bounds(loop.var).high;
        Expr var = index_var(loop.var.node().name, had ? std::optional(*had + 1) : std::nullopt);
        loop.body = substitute(loop.body, {{loop.var.node().name, var + begin}});
        loop.var = var;
        loop.extent = max(end - begin, 0);
        return loop;
    }

    // The iterations [low, high) in which all conditions hold apart from those before and after.
    Stmt in_ranges(For loop) {
        Varying varying = varying_in(loop.body);
        Extents inner = loops_in(loop.body);
        std::optional<Expr> low, high;
        std::vector<Expr> facts;
        std::vector<std::pair<Expr, Expr>> minima;
        auto narrow = [&](const Expr& condition) {
            if (!mentions(condition, loop.var.node().name)) return false;
            std::optional<Expr> all = holds_for_all(condition, inner);
            if (!all) return false;
            std::optional<Expr> new_low = low, new_high = high;
            for (const Expr& c : conjuncts(*all)) {
                if (c.is(ExprKind::Const) && c.node().integer) continue;
                std::optional<Expr> upper = solve_upper(c, loop.var), lower = solve_lower(c, loop.var);
                if (upper)
                    new_high = new_high ? min(*new_high, *upper) : *upper;
                else if (lower)
                    new_low = new_low ? max(*new_low, *lower) : *lower;
                else
                    return false;
            }
            low = new_low;
            high = new_high;
            return true;
        };
        for (const Expr& c : varying.conditions)
            if (narrow(c)) facts.push_back(c);
        for (const auto& m : varying.minima)
            if (narrow(all_at_least(m.first, m.second))) minima.push_back(m);
        Expr begin = low ? min(max(*low, 0), loop.extent) : Expr(0);
        Expr end = high ? max(min(*high, loop.extent), begin) : loop.extent;
        bool empty = begin.as_int() && end.as_int() && *begin.as_int() >= *end.as_int();
        if ((!low && !high) || empty) {
            loop.body = apply(loop.body);
            return for_loop(std::move(loop));
        }
        auto range = [&](const Expr& first, const Expr& count, const char* suffix, bool clean) -> Stmt {
            if (count.is_int(0)) return nullptr;
            For part = loop;
            part.extent = count;
            // The variable keeps the bound it had, also where the number of iterations does not show it.
            std::optional<int64_t> had = bounds(loop.var).high, constant = count.as_int();
            part.var = index_var(loop.var.node().name, constant || !had ? constant : *had + 1);
            if (clean)
                part.body = assume(part.body, facts, minima);
            else
                part.notes.erase("unroll");  // few iterations
            part.body = substitute(part.body, {{loop.var.node().name, part.var + first}});
            part.body = apply(part.body);
            Stmt made = for_loop(std::move(part));
            return *suffix ? copies_.copy(made, suffix) : made;
        };
        return seq({range(0, begin, ".head", false), range(begin, end - begin, "", true),
                    range(end, loop.extent - end, ".tail", false)});
    }

    // Two versions, of which one has no conditions. Inside a loop that runs in parallel, around one that is expanded.
    Stmt in_versions(For loop) {
        bool inside = loop.kind == LoopKind::Parallel || loop.kind == LoopKind::Bound;
        Stmt whole = for_loop(loop);
        const Stmt& body = inside ? loop.body : whole;
        Varying varying = varying_in(body);
        Extents inner = loops_in(body);
        Expr condition = int_const(1, DType::boolean);
        std::vector<Expr> facts;
        std::vector<std::pair<Expr, Expr>> minima;
        auto require = [&](const Expr& c) {
            std::optional<Expr> all = holds_for_all(c, inner);
            if (!all || (all->is(ExprKind::Const) && !all->node().integer)) return false;
            condition = logical_and(condition, *all);
            return true;
        };
        for (const Expr& c : varying.conditions)
            if (!c.node().reads && require(c)) facts.push_back(c);
        for (const auto& m : varying.minima)
            if (require(all_at_least(m.first, m.second))) minima.push_back(m);
        Stmt clean = assume(body, facts, minima), guarded = condition.is(ExprKind::Const) ? nullptr : body;
        auto below = [&](const Stmt& s) -> Stmt {  // the loop itself is done
            if (inside || !s) return apply(s);
            For copy = *s->as<For>();
            copy.body = apply(copy.body);
            return for_loop(std::move(copy));
        };
        Stmt both = if_then(condition, below(clean), guarded ? copies_.copy(below(guarded), ".edge") : nullptr);
        if (!inside) return both;
        loop.body = both;
        return for_loop(std::move(loop));
    }

    const Kernel& kernel_;
    RenamedCopies copies_;
};

}  // namespace

void partition_loops(Kernel& kernel) { kernel.body = Partition(kernel).apply(kernel.body); }

}  // namespace tessera
