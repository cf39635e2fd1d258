#include "kernel/from_tile/fetch_ahead.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernel/ir/intrinsic.h"
#include "kernel/ir/races.h"

namespace tessera::from_tile_detail {
namespace {

bool multiplies(const Stmt& s) {
    const Call* call = s ? s->as<Call>() : nullptr;
    const Intrinsic* known = call ? find_intrinsic(call->name) : nullptr;
    return known && known->by_block;
}

// A nest over threads whose only stores put what they load into one tile: its loops, and how many elements of a thread.
struct Bringing {
    int tile = -1;
    int64_t elements = 0;
    bool right = true;
};

Bringing look_at(const Kernel& kernel, const Stmt& s, const std::set<int>& written) {
    Bringing made;
    const For* first = s ? s->as<For>() : nullptr;
    if (!first || !is_thread_loop(*first)) return {.right = false};
    int64_t reads = 0;
    visit(s, [&](const Stmt& x) {
        if (x->as<Call>() || x->as<Alloc>()) made.right = false;
        const Store* to = x->as<Store>();
        if (!to) return;
        made.right &= !to->combine && (made.tile < 0 || made.tile == to->to.buffer);
        made.tile = to->to.buffer;
    });
    visit_exprs(s, [&](const Expr& e) {
        visit(e, [&](const Expr& x) {
            if (!x.is(ExprKind::Load)) return;
            made.right &= !written.contains(x.node().slot);
            reads += static_cast<size_t>(x.node().slot) < kernel.params;
        });
    });
    made.right &= made.tile >= 0 && reads > 0 && !kernel.buffers[static_cast<size_t>(made.tile)].strides.empty();
    return made;
}

class FetchAhead {
  public:
    explicit FetchAhead(Kernel& kernel) : kernel_(kernel) {}

    Stmt in(const Stmt& s) {
        if (!s) return s;
        if (const Seq* all = s->as<Seq>()) {
            std::vector<Stmt> list;
            for (const Stmt& each : all->stmts) list.push_back(in(each));
            return seq(std::move(list));
        }
        if (const Alloc* a = s->as<Alloc>()) return alloc(a->buffer, in(a->body));
        if (const If* branch = s->as<If>()) return if_then(branch->condition, in(branch->then), in(branch->otherwise));
        const For* loop = s->as<For>();
        if (!loop || is_thread_loop(*loop)) return s;
        For made = *loop;
        if (loop->kind != LoopKind::Serial) {
            made.body = in(loop->body);
            return make_stmt(std::move(made));
        }
        return ahead(*loop);
    }

  private:
    Stmt ahead(const For& loop) {
        std::vector<int> allocs;
        Stmt body = loop.body;
        while (body && body->as<Alloc>()) {
            allocs.push_back(body->as<Alloc>()->buffer);
            body = body->as<Alloc>()->body;
        }
        const Seq* all = body ? body->as<Seq>() : nullptr;
        const std::set<int> written = written_buffers(loop.body);
        bool same = true;  // extent, all along
        visit(loop.extent, [&](const Expr& x) { same &= !x.is(ExprKind::Load) || !written.contains(x.node().slot); });
        const bool fits = all && same && std::any_of(all->stmts.begin(), all->stmts.end(), multiplies) &&
                          has_room(all->stmts, written);
        if (!fits) {
            For made = loop;
            made.body = in(loop.body);
            return make_stmt(std::move(made));
        }
        std::vector<Stmt> before, list;
        std::vector<int> fetched;
        for (const Stmt& each : all->stmts) {
            const Bringing bringing = look_at(kernel_, each, written);
            if (!bringing.right) {
                list.push_back(each);
                continue;
            }
            const int own = add_own(bringing.tile, each);
            fetched.push_back(own);
            const Expr next = min(loop.var + 1, loop.extent - 1);
            before.push_back(cut(each, own, true, {{loop.var.node().name, Expr(0)}}));
            list.push_back(cut(each, own, false, {}));
            list.push_back(cut(each, own, true, {{loop.var.node().name, next}}));
        }
        For made = loop;
        made.body = seq(std::move(list));
        for (size_t a = allocs.size(); a-- > 0;) made.body = alloc(allocs[a], made.body);
        if (fetched.empty()) return make_stmt(std::move(made));
        Stmt whole = if_then(lt(Expr(0), loop.extent), seq(std::move(before)));
        whole = seq({whole, make_stmt(std::move(made))});
        for (int own : fetched) whole = alloc(own, whole);
        return whole;
    }

    // Registers of a thread for the sums, and for what is fetched.
    bool has_room(const std::vector<Stmt>& all, const std::set<int>& written) const {
        constexpr int64_t kMostRegisters = 112, kRegisterBytes = 4;
        int64_t bytes = 0;
        std::set<int> sums;
        for (const Stmt& each : all) {
            if (multiplies(each)) sums.insert(each->as<Call>()->writes[0].buffer);
            const Bringing bringing = look_at(kernel_, each, written);
            if (bringing.right) bytes += of_thread(bringing.tile, warps_of(each));
        }
        for (int slot : sums) bytes += *kernel_.buffers[static_cast<size_t>(slot)].shape[3].as_int() * kRegisterBytes;
        return bytes <= kMostRegisters * kRegisterBytes;
    }
    int64_t of_thread(int tile, int64_t warps) const {
        const Buffer& b = kernel_.buffers[static_cast<size_t>(tile)];
        auto bytes = static_cast<int64_t>(dtype_bytes(b.dtype));
        for (const Expr& size : b.shape) bytes *= *size.as_int();
        return bytes / (warps * kThreadsOfWarp);
    }
    int64_t warps_of(const Stmt& s) const { return *bound_nest(*s->as<For>()).loops[0]->extent.as_int(); }

    // As many elements as a thread has of the tile.
    int add_own(int tile, const Stmt& s) {
        const Buffer& b = kernel_.buffers[static_cast<size_t>(tile)];
        int64_t elements = 1;
        for (const Expr& size : b.shape) elements *= *size.as_int();
        const int64_t warps = warps_of(s), threads = warps * kThreadsOfWarp;
        kernel_.buffers.push_back(
            {.name = fmt::format("next{}", kernel_.buffers.size()),
             .dtype = b.dtype,
             .shape = {warps, kGroupsOfWarp, kPairsOfGroup, std::max<int64_t>(1, elements / threads)},
             .scope = Scope::Shared});
        return static_cast<int>(kernel_.buffers.size()) - 1;
    }

    // The nest with one half of what it does, with variables of its own.
    Stmt cut(const Stmt& s, int own, bool load_half, const Bindings& bindings) {
        const BoundNest nest = bound_nest(*s->as<For>());
        const TileIndices thread{nest.loops[0]->var, nest.loops[1]->var, nest.loops[2]->var};
        // The number of an element among the thread's, by the loops around it.
        std::function<Stmt(const Stmt&, const Expr&)> walk = [&](const Stmt& x, const Expr& number) -> Stmt {
            if (!x) return x;
            if (const For* loop = x->as<For>()) {
                const bool bound = loop->kind == LoopKind::Bound;
                For made = *loop;
                made.body = walk(loop->body, bound ? number : number * loop->extent + loop->var);
                return make_stmt(std::move(made));
            }
            if (const If* branch = x->as<If>()) {
                // Both branches are about the same elements.
                if (!load_half && branch->otherwise) return walk(branch->then, number);
                return if_then(branch->condition, walk(branch->then, number), walk(branch->otherwise, number));
            }
            if (const Seq* all = x->as<Seq>()) {
                std::vector<Stmt> list;
                for (const Stmt& each : all->stmts) list.push_back(walk(each, number));
                return seq(std::move(list));
            }
            const Store* to = x->as<Store>();
            TileIndices at = thread;
            at.push_back(number);
            const DType dtype = kernel_.buffers[static_cast<size_t>(to->to.buffer)].dtype;
            return load_half ? store(own, at, to->value) : store(to->to.buffer, to->to.indices, load(own, dtype, at));
        };
        Stmt made = walk(s, 0);
        if (!bindings.empty()) made = substitute(made, bindings);
        return renamed_loops(made);
    }

    Stmt renamed_loops(const Stmt& s) {
        Bindings names;
        visit(s, [&](const Stmt& x) {
            const For* loop = x->as<For>();
            if (!loop) return;
            const std::string& name = loop->var.node().name;
            names.emplace(name, index_var(fmt::format("{}_{}", name, number_++), loop->extent.as_int()));
        });
        return substitute(s, names);
    }

    Kernel& kernel_;
    int number_ = 0;
};

}  // namespace

void fetch_ahead(Kernel& kernel) { kernel.body = FetchAhead(kernel).in(kernel.body); }

}  // namespace tessera::from_tile_detail
