#include "kernel/from_tile/hoist_divisions.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernel/ir/multiples.h"
#include "kernel/ir/races.h"

namespace tessera::from_tile_detail {
namespace {

constexpr int64_t kMostKept = 16;  // numbers of each thread

// A quotient or remainder by a number that is not known.
bool divides(const Expr& e) {
    return (e.is(ExprKind::Mod) || e.is(ExprKind::Rem) || e.is(ExprKind::FloorDiv)) && e.dtype() == DType::i64 &&
           !e.arg(1).as_int();
}

class HoistDivisions {
  public:
    explicit HoistDivisions(Kernel& kernel) : kernel_(kernel) {}

    Stmt in(const Stmt& s) {
        return mutate(s, [&](const Stmt& x) -> Stmt {
            const For* loop = x ? x->as<For>() : nullptr;
            return loop && loop->kind == LoopKind::Serial ? hoisted(*loop) : x;
        });
    }

  private:
    struct Kept {
        Expr whole;
        int64_t multiple;  // it is a multiple of this, and the quotient is kept
        int own;
        TileIndices at;
    };

    bool is_one(const Expr& e, const For& loop, const std::set<int>& written) const {
        if (!divides(e) || depends_on(e, loop.var)) return false;
        bool same = true;
        visit(e, [&](const Expr& x) { same &= !x.is(ExprKind::Load) || !written.contains(x.node().slot); });
        return same;
    }

    Stmt hoisted(const For& loop) {
        bool has_threads = false;
        visit(loop.body, [&](const Stmt& s) {
            const For* inner = s->as<For>();
            has_threads |= inner && is_thread_loop(*inner);
        });
        if (!has_threads) return make_stmt(loop);
        const std::set<int> written = written_buffers(loop.body);
        std::vector<Stmt> before;
        std::vector<int> owns;
        For made = loop;
        made.body = mutate(loop.body, [&](const Stmt& s) -> Stmt {
            const For* warps = s ? s->as<For>() : nullptr;
            if (!warps || warps->axis != "thread.z") return s;
            return kept_in(s, loop, written, before, owns);
        });
        if (before.empty()) return make_stmt(loop);
        before.push_back(make_stmt(std::move(made)));
        Stmt whole = seq(std::move(before));
        for (int own : owns) whole = alloc(own, whole);
        return whole;
    }

    Stmt kept_in(const Stmt& nest_stmt, const For& loop, const std::set<int>& written, std::vector<Stmt>& before,
                 std::vector<int>& owns) {
        const BoundNest nest = bound_nest(*nest_stmt->as<For>());
        std::map<std::string, const For*> loops;  // of a thread's elements
        visit(nest.body, [&](const Stmt& s) {
            if (const For* inner = s->as<For>()) loops.emplace(inner->var.node().name, inner);
        });
        std::vector<Kept> all;
        visit_exprs(nest.body, [&](const Expr& e) {
            visit(e, [&](const Expr& x) {
                if (!is_one(x, loop, written)) return;
                if (std::none_of(all.begin(), all.end(), [&](const Kept& k) { return k.whole.same(x); }))
                    keep(x, nest, loops, all, before, owns);
            });
        });
        if (all.empty()) return nest_stmt;
        return map_exprs(nest_stmt, [&](const Expr& e) {
            return rewrite(e, [&](const Expr& x) {
                for (const Kept& k : all)
                    if (x.same(k.whole)) return load(k.own, DType::i64, k.at) * Expr(k.multiple);
                return x;
            });
        });
    }

    void keep(const Expr& x, const BoundNest& nest, const std::map<std::string, const For*>& loops,
              std::vector<Kept>& all, std::vector<Stmt>& before, std::vector<int>& owns) {
        std::vector<const For*> around;
        int64_t count = 1;
        for (const std::string& name : free_symbols(x)) {
            auto found = loops.find(name);
            if (found == loops.end()) continue;
            if (found->second->kind != LoopKind::Unrolled) return;
            around.push_back(found->second);
            count *= *found->second->extent.as_int();
        }
        if (count > kMostKept) return;
        const int64_t multiple = std::max<int64_t>(1, std::gcd(int64_t{16}, divisor_of(x)));
        const int own = static_cast<int>(kernel_.buffers.size());
        kernel_.buffers.push_back({.name = fmt::format("left{}", own),
                                   .dtype = DType::i64,
                                   .shape = {nest.loops[0]->extent, kGroupsOfWarp, kPairsOfGroup, count},
                                   .scope = Scope::Shared});
        owns.push_back(own);
        TileIndices at{nest.loops[0]->var, nest.loops[1]->var, nest.loops[2]->var};
        Expr number = 0;
        for (const For* loop : around) number = number * loop->extent + loop->var;
        at.push_back(number);
        all.push_back({x, multiple, own, at});
        Stmt body = store(own, at, floor_div(x, multiple));
        for (size_t l = around.size(); l-- > 0;) {
            For each = *around[l];
            each.body = body;
            body = make_stmt(std::move(each));
        }
        for (size_t l = nest.loops.size(); l-- > 0;) {
            For each = *nest.loops[l];
            each.body = body;
            body = make_stmt(std::move(each));
        }
        Bindings names;
        visit(body, [&](const Stmt& s) {
            if (const For* loop = s->as<For>())
                names.emplace(loop->var.node().name,
                              index_var(fmt::format("{}_left{}", loop->var.node().name, own), loop->extent.as_int()));
        });
        before.push_back(substitute(body, names));
    }

    Kernel& kernel_;
};

// In front of a serial loop, those of its body that depend on nothing that it changes.
Stmt in_front_of(Kernel& kernel, const For& loop) {
    std::set<std::string> own{loop.var.node().name};
    visit(loop.body, [&](const Stmt& s) {
        if (const For* inner = s->as<For>()) own.insert(inner->var.node().name);
    });
    const std::set<int> written = written_buffers(loop.body);
    std::vector<std::pair<Expr, int>> kept;
    std::vector<Stmt> before;
    For made = loop;
    made.body = map_exprs(loop.body, [&](const Expr& whole) {
        return rewrite(whole, [&](const Expr& e) {
            if (!divides(e)) return e;
            const std::vector<std::string> names = free_symbols(e);
            bool same = std::none_of(names.begin(), names.end(), [&](const std::string& n) { return own.contains(n); });
            // What is read behind a condition may not be there: of loads, only numbers that the kernel keeps.
            visit(e, [&](const Expr& x) {
                if (!x.is(ExprKind::Load)) return;
                const Scope scope = kernel.buffers[static_cast<size_t>(x.node().slot)].scope;
                same &= x.args().empty() && scope != Scope::Global && !written.contains(x.node().slot);
            });
            if (!same) return e;
            const auto known = std::find_if(kept.begin(), kept.end(), [&](const auto& k) { return k.first.same(e); });
            if (known != kept.end()) return load(known->second, DType::i64, {});
            const int slot = static_cast<int>(kernel.buffers.size());
            kernel.buffers.push_back(
                {.name = fmt::format("left{}", slot), .dtype = DType::i64, .shape = {}, .scope = Scope::Local});
            kept.emplace_back(e, slot);
            before.push_back(store(slot, {}, e));
            return load(slot, DType::i64, {});
        });
    });
    if (before.empty()) return make_stmt(loop);
    before.push_back(make_stmt(std::move(made)));
    Stmt whole = seq(std::move(before));
    for (const auto& [expr, slot] : kept) whole = alloc(slot, whole);
    return whole;
}

}  // namespace

void hoist_divisions_of_loops(Kernel& kernel) {
    kernel.body = mutate(kernel.body, [&](const Stmt& s) -> Stmt {
        const For* loop = s ? s->as<For>() : nullptr;
        return loop && loop->kind == LoopKind::Serial ? in_front_of(kernel, *loop) : s;
    });
}

void hoist_divisions(Kernel& kernel) { kernel.body = HoistDivisions(kernel).in(kernel.body); }

}  // namespace tessera::from_tile_detail
