// What needs no shared memory: tiles of which each thread uses its own elements alone, and single elements.
#include <algorithm>

#include "kernel/from_tile/layout.h"
#include "kernel/ir/group_steps.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/ir/races.h"
#include "kernel/ir/tile_calls.h"

namespace tessera::from_tile_detail {
namespace {

using Look = std::function<void(int, const TileIndices&, bool)>;  // buffer, indices, writes

void look_at(const Expr& e, const Look& look) {
    if (!e.node().reads) return;
    visit(e, [&](const Expr& x) {
        if (x.is(ExprKind::Load)) look(x.node().slot, x.args(), false);
    });
}

// Of one statement, without those inside of it.
void look_at_one(const Stmt& s, const Look& look) {
    if (const For* loop = s->as<For>()) look_at(loop->extent, look);
    if (const If* branch = s->as<If>()) look_at(branch->condition, look);
    if (const Store* to = s->as<Store>()) {
        for (const Expr& index : to->to.indices) look_at(index, look);
        look_at(to->value, look);
        look(to->to.buffer, to->to.indices, true);
    }
    const Call* call = s->as<Call>();
    if (!call) return;
    for (const Expr& e : call->args) look_at(e, look);
    for (const auto* list : {&call->writes, &call->reads})
        for (const Access& a : *list) {
            for (const Expr& index : a.indices) look_at(index, look);
            look(a.buffer, a.indices, list == &call->writes);
        }
}

const Intrinsic* product_of(const Stmt& s) {
    const Call* call = s->as<Call>();
    const Intrinsic* known = call ? find_intrinsic(call->name) : nullptr;
    return known && known->by_block ? known : nullptr;
}

bool is_product(const Stmt& s) { return product_of(s) != nullptr; }

// What of a product lies with the threads.
bool is_of_threads(const Stmt& product, int buffer) {
    const Call& call = *product->as<Call>();
    return buffer == call.writes[0].buffer || (product_of(product)->from_threads && buffer == call.reads[0].buffer);
}

// The statement with other accesses; loops and branches keep what is inside of them.
using Moved = std::function<std::optional<TileIndices>(int, const TileIndices&)>;

Expr moved_expr(const Expr& e, const Moved& moved) {
    if (!e.node().reads) return e;
    return rewrite(e, [&](const Expr& x) {
        if (!x.is(ExprKind::Load)) return x;
        const auto at = moved(x.node().slot, x.args());
        return at ? load(x.node().slot, x.dtype(), *at) : x;
    });
}

Stmt moved_accesses(const Stmt& s, const Moved& moved) {
    const auto place = [&](Access a) {
        for (Expr& index : a.indices) index = moved_expr(index, moved);
        if (const auto at = moved(a.buffer, a.indices)) a.indices = *at;
        return a;
    };
    if (const Store* to = s->as<Store>()) {
        Store made = *to;
        made.value = moved_expr(made.value, moved);
        made.to = place(made.to);
        return make_stmt(std::move(made));
    }
    if (const Call* call = s->as<Call>()) {
        Call made = *call;
        for (Expr& e : made.args) e = moved_expr(e, moved);
        for (auto* list : {&made.writes, &made.reads})
            for (Access& a : *list) a = place(a);
        return make_stmt(std::move(made));
    }
    if (const If* branch = s->as<If>())
        return if_then(moved_expr(branch->condition, moved), branch->then, branch->otherwise);
    if (const For* loop = s->as<For>()) {
        For made = *loop;
        made.extent = moved_expr(made.extent, moved);
        return make_stmt(std::move(made));
    }
    return s;
}

Stmt moved_inside(const Stmt& s, const Moved& moved) {
    return mutate(s, [&](const Stmt& each) { return each ? moved_accesses(each, moved) : each; });
}

const For* warp_loop(const Stmt& s) {
    const For* loop = s ? s->as<For>() : nullptr;
    return loop && is_thread_loop(*loop) ? loop : nullptr;
}

bool has_inside(const Kernel& kernel, const Stmt& s) {
    bool found = false;
    visit(s, [&](const Stmt& x) {
        const Alloc* a = x->as<Alloc>();
        found |= warp_loop(x) != nullptr || is_product(x);
        found |= a && kernel.buffers[static_cast<size_t>(a->buffer)].scope == Scope::Shared;
        const Call* call = x->as<Call>();
        found |= call && is_group_step(*call);
    });
    return found;
}

std::optional<Expr> own_number(const TilePlace& place, const TileIndices& at) {
    if (same_indices(at, place.at)) return place.own;
    for (const auto& [named, number] : place.also)
        if (same_indices(at, named)) return number;
    return std::nullopt;
}

// A nest whose condition says which of its threads do it, without that.
Stmt for_all_threads(const Stmt& s) {
    return mutate(s, [](const Stmt& x) -> Stmt {
        const For* loop = x ? x->as<For>() : nullptr;
        const If* branch = loop && loop->axis == "thread.x" && loop->body ? loop->body->as<If>() : nullptr;
        if (!branch) return x;
        For made = *loop;
        made.body = branch->then;
        return make_stmt(std::move(made));
    });
}

bool is_own_already(const Buffer& b) { return b.shape.size() == 4 && b.name.starts_with("own"); }

}  // namespace

bool keep_with_threads(Kernel& kernel, const std::map<std::string, TilePlace>& places,
                       const std::map<std::vector<int64_t>, TileLayout>& layouts, const std::set<int>& wanted) {
    std::set<int> others;  // that do not
    const auto shape_of = [&](int buffer) {
        std::vector<int64_t> shape;
        for (const Expr& size : kernel.buffers[static_cast<size_t>(buffer)].shape)
            shape.push_back(size.as_int().value_or(-1));
        return shape;
    };
    // The number of an element among the thread's, where it is one of those.
    const auto number_in = [&](const TilePlace& place, const std::vector<int64_t>& shape,
                               const TileIndices& at) -> std::optional<Expr> {
        if (shape == place.shape) return own_number(place, at);
        auto known = layouts.find(shape);
        if (!place.row || known == layouts.end() || !known->second.of_rows || shape[0] != place.shape[0] ||
            !at[0].same(place.at[0]))
            return std::nullopt;
        return place.row;
    };
    const auto place_of = [&](const Stmt& s) -> const TilePlace* {
        const For* loop = warp_loop(s);
        auto found = loop ? places.find(loop->var.node().name) : places.end();
        return found == places.end() ? nullptr : &found->second;
    };
    std::function<void(const Stmt&, const TilePlace*)> walk = [&](const Stmt& s, const TilePlace* place) {
        if (!s) return;
        if (const TilePlace* own = place_of(s)) place = own;
        look_at_one(s, [&](int buffer, const TileIndices& at, bool) {
            if (is_product(s) && is_of_threads(s, buffer)) return;
            if (!place || !number_in(*place, shape_of(buffer), at)) others.insert(buffer);
        });
        if (const Seq* all = s->as<Seq>())
            for (const Stmt& each : all->stmts) walk(each, place);
        if (const Alloc* a = s->as<Alloc>()) walk(a->body, place);
        if (const For* loop = s->as<For>()) walk(loop->body, place);
        if (const If* branch = s->as<If>()) walk(branch->then, place), walk(branch->otherwise, place);
    };
    walk(kernel.body, nullptr);
    for (int slot : wanted)
        if (others.contains(slot)) return false;
    std::map<int, std::vector<int64_t>> kept;  // and the shape that each had
    for (size_t slot = kernel.params; slot < kernel.buffers.size(); ++slot) {
        const Buffer& b = kernel.buffers[slot];
        if (b.scope != Scope::Shared || b.shape.empty() || is_own_already(b) || others.contains(static_cast<int>(slot)))
            continue;
        kept.emplace(static_cast<int>(slot), shape_of(static_cast<int>(slot)));
    }
    for (const auto& [slot, shape] : kept) {
        int64_t elements = 1, warps = 1;
        Buffer& b = kernel.buffers[static_cast<size_t>(slot)];
        for (const auto& [name, place] : places) {
            if (place.shape != shape) continue;
            elements = 1;
            warps = place.warps;
            for (const TilePlace::Loop& loop : place.loops) elements *= loop.extent;
        }
        b.shape = {warps, kGroupsOfWarp, kPairsOfGroup, elements};
        b.strides.clear();
    }
    std::function<Stmt(const Stmt&)> threads = [&](const Stmt& s) -> Stmt {
        if (is_product(s)) {
            Call made = *s->as<Call>();
            made.writes[0].indices = {0, 0, 0, 0};
            if (product_of(s)->from_threads) made.reads[0].indices = {0, 0, 0, 0};
            return make_stmt(std::move(made));
        }
        const TilePlace* place = place_of(s);
        if (!place) return s;
        const Stmt made = moved_inside(s, [&](int buffer, const TileIndices& at) -> std::optional<TileIndices> {
            auto had = kept.find(buffer);
            if (had == kept.end()) return std::nullopt;
            return place->of_thread(*number_in(*place, had->second, at));
        });
        const std::set<int> written = written_buffers(made);
        const bool own = std::all_of(written.begin(), written.end(), [&](int b) { return kept.contains(b); });
        return place->of_rows && own ? for_all_threads(made) : made;
    };
    kernel.body = mutate(kernel.body, [&](const Stmt& s) { return s ? threads(s) : s; });
    return true;
}

namespace {

// Single elements, and what a block does once.
class Everywhere {
  public:
    Everywhere(Kernel& kernel, int64_t warps, int& names) : kernel_(kernel), warps_(warps), names_(names) {
        for (size_t slot = kernel.params; slot < kernel.buffers.size(); ++slot)
            if (kernel.buffers[slot].scope == Scope::Shared && kernel.buffers[slot].shape.empty())
                single_.insert(static_cast<int>(slot));
    }

    void run() {
        find(kernel_.body);
        settle();
        if (single_.empty()) return;
        alone_ = {units_.begin(), units_.end()};
        kernel_.body = made(kernel_.body);
        for (int slot : single_)
            kernel_.buffers[static_cast<size_t>(slot)].shape = {warps_, kGroupsOfWarp, kPairsOfGroup, 1};
    }

  private:
    void drop_written(const Stmt& s) {
        visit(s, [&](const Stmt& x) {
            look_at_one(x, [&](int buffer, const TileIndices&, bool writes) {
                if (writes) single_.erase(buffer);
            });
        });
    }

    void find(const Stmt& s) {
        if (!s) return;
        const auto drop = [&](int buffer, const TileIndices&, bool) { single_.erase(buffer); };
        if (const Seq* all = s->as<Seq>()) {
            for (const Stmt& each : all->stmts) find(each);
        } else if (const Alloc* a = s->as<Alloc>(); a && has_inside(kernel_, s)) {
            find(a->body);
        } else if (warp_loop(s)) {
            drop_written(s);
        } else if (const Call* call = s->as<Call>();
                   call && (is_product(s) || is_group_step(*call) || call->name == kLeave)) {
            look_at_one(s, drop);
        } else if (const For* loop = s->as<For>(); loop && (is_block_loop(*loop) || has_inside(kernel_, s))) {
            look_at_one(s, drop);
            find(loop->body);
        } else if (const If* branch = s->as<If>(); branch && has_inside(kernel_, s)) {
            look_at_one(s, drop);
            find(branch->then);
            find(branch->otherwise);
        } else {
            units_.push_back(s);
            visit(s, [&](const Stmt& x) {
                if (x->as<Call>() && x->as<Call>()->name != kBits) drop_written(x);
            });
        }
    }

    std::set<int> written(const Stmt& s) const {
        std::set<int> all;
        for (int b : written_buffers(s))
            if (kernel_.buffers[static_cast<size_t>(b)].scope != Scope::Local) all.insert(b);
        return all;
    }
    bool are_single(const std::set<int>& all) const {
        return std::all_of(all.begin(), all.end(), [&](int b) { return single_.contains(b); });
    }

    // What a unit writes, each thread has or none.
    void settle() {
        for (bool changed = true; changed;) {
            changed = false;
            for (const Stmt& unit : units_) {
                const std::set<int> all = written(unit);
                if (are_single(all)) continue;
                for (int b : all) changed |= single_.erase(b) > 0;
            }
        }
    }

    Moved with(const TilePlace& place) const {
        return [this, place](int buffer, const TileIndices&) -> std::optional<TileIndices> {
            if (!single_.contains(buffer)) return std::nullopt;
            return place.of_thread(0);
        };
    }

    Stmt unit(const Stmt& s) {
        bool touches = false;
        visit(s, [&](const Stmt& x) {
            look_at_one(x, [&](int buffer, const TileIndices&, bool) { touches |= single_.contains(buffer); });
        });
        if (!touches) return s;
        const TilePlace place = threads_alone(warps_, names_);
        const std::set<int> all = written(s);
        Stmt body = moved_inside(s, with(place));
        if (all.empty() || !are_single(all)) {
            const Expr first = logical_and(eq(place.group, Expr(0)), eq(place.pair, Expr(0)));
            body = if_then(logical_and(eq(place.warp, Expr(0)), first), body);
        }
        return in_threads(place, std::move(body));
    }

    Stmt made(const Stmt& s) {
        if (!s) return s;
        if (alone_.contains(s)) return unit(s);
        if (const For* loop = warp_loop(s)) {
            TilePlace place;
            const BoundNest nest = bound_nest(*loop);
            place.warp = nest.loops[0]->var, place.group = nest.loops[1]->var, place.pair = nest.loops[2]->var;
            return moved_inside(s, with(place));
        }
        if (const Seq* all = s->as<Seq>()) {
            std::vector<Stmt> list;
            for (const Stmt& each : all->stmts) list.push_back(made(each));
            return seq(std::move(list));
        }
        if (const Alloc* a = s->as<Alloc>()) return alloc(a->buffer, made(a->body));
        if (const For* loop = s->as<For>()) {
            For changed = *loop;
            changed.body = made(loop->body);
            return make_stmt(std::move(changed));
        }
        if (const If* branch = s->as<If>())
            return if_then(branch->condition, made(branch->then), made(branch->otherwise));
        return s;
    }

    Kernel& kernel_;
    const int64_t warps_;
    int& names_;
    std::set<int> single_;
    std::vector<Stmt> units_;
    std::set<Stmt> alone_;
};

}  // namespace

void compute_everywhere(Kernel& kernel, int64_t warps, int& names) { Everywhere(kernel, warps, names).run(); }

}  // namespace tessera::from_tile_detail
