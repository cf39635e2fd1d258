#include "kernel/from_tile/fetch_ahead.h"

#include <algorithm>

#include "kernel/ir/atomics.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/ir/races.h"
#include "kernel/ir/renamed_copy.h"
#include "kernel/ir/tile_calls.h"
#include "kernel/ir/tile_copy.h"

namespace tessera::from_tile_detail {
namespace {

bool multiplies(const Stmt& s) {
    const Call* call = s ? s->as<Call>() : nullptr;
    const Intrinsic* known = call ? find_intrinsic(call->name) : nullptr;
    return known && known->by_block;
}

// What a loop does with memory.
struct Uses {
    std::set<int> written, by_threads;  // buffers; those that threads read
    bool ordered = false;               // something in it must not be overtaken
};

Uses uses_in(const Kernel& kernel, const Stmt& body) {
    Uses all;
    all.written = written_buffers(body);
    visit(body, [&](const Stmt& s) {
        const Call* call = s->as<Call>();
        all.ordered |= call && (is_atomic(*call) || call->name == kReport || call->name == kLeave);
        if (!call || multiplies(s)) return;
        for (const Access& a : call->reads) all.by_threads.insert(a.buffer);
    });
    visit_exprs(body, [&](const Expr& e) {
        visit(e, [&](const Expr& x) {
            if (x.is(ExprKind::Load)) all.by_threads.insert(x.node().slot);
        });
    });
    // Two arrays of all memory may be the same.
    const bool anywhere = std::any_of(all.written.begin(), all.written.end(),
                                      [&](int b) { return is_anywhere(kernel.buffers[static_cast<size_t>(b)]); });
    for (size_t b = 0; anywhere && b < kernel.params; ++b) all.written.insert(static_cast<int>(b));
    return all;
}

// The tile into which a nest over threads stores what it loads, and nothing else; or -1.
int brought_by(const Kernel& kernel, const Stmt& s, const Uses& uses) {
    const For* first = s ? s->as<For>() : nullptr;
    if (!first || !is_thread_loop(*first)) return -1;
    int tile = -1;
    bool right = true, reads = false;
    visit(s, [&](const Stmt& x) {
        right &= !x->as<Call>() && !x->as<Alloc>();
        const Store* to = x->as<Store>();
        if (!to) return;
        right &= !to->combine && (tile < 0 || tile == to->to.buffer);
        tile = to->to.buffer;
    });
    visit_exprs(s, [&](const Expr& e) {
        visit(e, [&](const Expr& x) {
            if (!x.is(ExprKind::Load)) return;
            right &= !uses.written.contains(x.node().slot);
            reads |= static_cast<size_t>(x.node().slot) < kernel.params;
        });
    });
    const bool of_products = tile >= 0 && static_cast<size_t>(tile) >= kernel.params && !uses.by_threads.contains(tile);
    return right && reads && of_products ? tile : -1;
}

// One vector under a condition and zeros otherwise, as one that is chosen.
Stmt with_choice(const Stmt& s) {
    return mutate(s, [](const Stmt& x) -> Stmt {
        const If* branch = x ? x->as<If>() : nullptr;
        const For *taken = branch && branch->then ? branch->then->as<For>() : nullptr,
                  *other = branch && branch->otherwise ? branch->otherwise->as<For>() : nullptr;
        if (!taken || !other || taken->kind != LoopKind::Vector || other->kind != LoopKind::Vector) return x;
        const Store *to = taken->body->as<Store>(), *zero = other->body->as<Store>();
        if (!to || !zero || taken->extent != other->extent || !to->value.is(ExprKind::Load)) return x;
        const Bindings renamed{{other->var.node().name, taken->var}};
        const Expr none = substitute(zero->value, renamed);
        if (!none.is(ExprKind::Const)) return x;
        for (size_t d = 0; d < to->to.indices.size(); ++d)
            if (!substitute(zero->to.indices[d], renamed).same(to->to.indices[d])) return x;
        For made = *taken;
        made.body = store(to->to.buffer, to->to.indices, select(branch->condition, to->value, none));
        return make_stmt(std::move(made));
    });
}

// What hardly ever happens takes few instructions: its loops are not unrolled, unless threads' own elements are chosen
// by them.
Stmt seldom(const Kernel& kernel, const Stmt& s) {
    return mutate(s, [&](const Stmt& x) -> Stmt {
        const For* loop = x ? x->as<For>() : nullptr;
        if (!loop || (loop->kind != LoopKind::Unrolled && loop->kind != LoopKind::Vector)) return x;
        bool chosen = false;
        visit_exprs(loop->body, [&](const Expr& e) {
            visit(e, [&](const Expr& y) {
                if (!y.is(ExprKind::Load) || static_cast<size_t>(y.node().slot) < kernel.params) return;
                for (const Expr& index : y.args()) chosen |= depends_on(index, loop->var);
            });
        });
        if (chosen) return x;
        For made = *loop;
        made.kind = LoopKind::Serial;
        return make_stmt(std::move(made));
    });
}

// Conditions that are the same in all copies of an unrolled loop are asked once.
Stmt with_conditions_outside(Kernel& kernel, const Stmt& s) {
    RenamedCopies copies(kernel);
    return mutate(s, [&](const Stmt& x) -> Stmt {
        const For* loop = x ? x->as<For>() : nullptr;
        const If* branch = loop && loop->kind == LoopKind::Unrolled && loop->body ? loop->body->as<If>() : nullptr;
        if (!branch || depends_on(branch->condition, loop->var)) return x;
        const auto part = [&](const Stmt& body) -> Stmt {
            if (!body) return body;
            For made = *loop;
            made.body = body;
            return make_stmt(std::move(made));
        };
        Stmt otherwise = seldom(kernel, part(branch->otherwise));
        if (otherwise) otherwise = copies.copy(otherwise, "seldom");
        return if_then(branch->condition, part(branch->then), std::move(otherwise));
    });
}

class FetchAhead {
  public:
    FetchAhead(Kernel& kernel, int64_t iterations) : kernel_(kernel), iterations_(iterations) {}

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
        if (loop->kind == LoopKind::Serial)
            if (Stmt made = ahead(*loop)) return made;
        For made = *loop;
        made.body = in(loop->body);
        return make_stmt(std::move(made));
    }

  private:
    // Null: nothing can be brought earlier.
    Stmt ahead(const For& loop) {
        std::vector<int> allocs;
        Stmt body = loop.body;
        while (body && body->as<Alloc>()) {
            allocs.push_back(body->as<Alloc>()->buffer);
            body = body->as<Alloc>()->body;
        }
        const Seq* all = body ? body->as<Seq>() : nullptr;
        if (!all || std::none_of(all->stmts.begin(), all->stmts.end(), multiplies)) return nullptr;
        const Uses uses = uses_in(kernel_, loop.body);
        bool fits = !uses.ordered;  // and the number of iterations stays the same
        visit(loop.extent,
              [&](const Expr& x) { fits &= !x.is(ExprKind::Load) || !uses.written.contains(x.node().slot); });
        if (!fits) return nullptr;
        std::map<int, int> writers;
        for (const Stmt& each : all->stmts)
            for (int b : written_buffers(each)) ++writers[b];
        bool any = false;
        std::vector<Stmt> list;
        for (const Stmt& each : all->stmts) {
            const int tile = brought_by(kernel_, each, uses);
            if (tile < 0 || writers[tile] > 1 || std::find(allocs.begin(), allocs.end(), tile) == allocs.end()) {
                list.push_back(each);
                continue;
            }
            For brings = *with_conditions_outside(kernel_, with_choice(each))->as<For>();
            brings.notes["brings"] = 1;
            list.push_back(make_stmt(std::move(brings)));
            any = true;
        }
        if (!any) return nullptr;
        For made = loop;
        made.notes["ahead"] = iterations_;
        made.body = seq(std::move(list));
        for (size_t a = allocs.size(); a-- > 0;) made.body = alloc(allocs[a], made.body);
        return make_stmt(std::move(made));
    }

    Kernel& kernel_;
    const int64_t iterations_;
};

}  // namespace

void fetch_ahead(Kernel& kernel, int64_t iterations) {
    if (iterations > 0) kernel.body = FetchAhead(kernel, iterations).in(kernel.body);
}

}  // namespace tessera::from_tile_detail
