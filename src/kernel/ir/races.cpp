#include "kernel/ir/races.h"

#include <algorithm>

#include "kernel/ir/atomics.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/ir/text.h"
#include "kernel/ir/tile_calls.h"
#include "kernel/ir/touches.h"

namespace tessera {
namespace {

using Touches = std::vector<Touch>;

bool has_bound_loop(const Stmt& s) {
    bool found = false;
    visit(s, [&](const Stmt& x) {
        const For* loop = x->as<For>();
        found |= loop && loop->kind == LoopKind::Bound;
    });
    return found;
}

// Walks through what runs at once, and compares touches that no barrier parts: each pair where it first comes together.
class RaceFinder {
  public:
    RaceFinder(const Kernel& kernel, const BoundNest& nest, std::vector<Expr> conditions, const std::set<int>& written,
               bool global)
        : kernel_(kernel),
          global_(global),
          threads_(is_thread_loop(*nest.loops[0])),
          at_once_{{}, written},
          conditions_(std::move(conditions)) {
        for (const For* loop : nest.loops) {
            at_once_.vars.push_back(loop->var);
            conditions_.push_back(lt(loop->var, loop->extent));
        }
    }

    Status run(const Stmt& body) {
        (void)walk(body);
        return std::move(status_);
    }

  private:
    // What a statement touches before its first barrier and after its last, and whether it can be passed without one:
    // where these conditions hold, which are the same for all threads.
    struct Parts {
        Touches head, tail;
        bool through = true;
        std::vector<Expr> pass = {};
    };

    const Kernel& kernel_;
    const bool global_;
    const bool threads_;  // not blocks, which no barrier parts
    AtOnce at_once_;
    std::vector<Expr> conditions_;
    std::vector<std::string> own_;
    Status status_;

    Parts walk(const Stmt& s) {
        if (!s || !status_.ok()) return {};
        if (const Seq* list = s->as<Seq>()) {
            Parts all;
            for (const Stmt& each : list->stmts) all = then(std::move(all), walk(each));
            return all;
        }
        if (const Alloc* a = s->as<Alloc>()) return walk(a->body);
        if (const For* loop = s->as<For>()) return walk_loop(s, *loop);
        if (const If* branch = s->as<If>()) return walk_branch(s, *branch);
        if (threads_ && is_barrier(s)) return {{}, {}, false};
        Touches all;
        if (const Store* to = s->as<Store>()) {
            read(to->value, s, all);
            for (const Expr& index : to->to.indices) read(index, s, all);
            touch({.buffer = to->to.buffer, .indices = to->to.indices, .writes = true, .stmt = s}, all);
        }
        const Call* call = s->as<Call>();
        if (call && (is_atomic(*call) || call->name == kBits)) {
            // Of atomic updates, what others update at the same time does no harm.
            for (const Expr& e : call->args) read(e, s, all);
            for (const Access& a : call->reads) touch({.buffer = a.buffer, .indices = a.indices, .stmt = s}, all);
            const size_t kept = is_atomic(*call) ? call->writes.size() - 1 : call->writes.size();
            for (size_t i = 0; i < kept; ++i)
                touch({.buffer = call->writes[i].buffer, .indices = call->writes[i].indices, .writes = true, .stmt = s},
                      all);
        } else if (call && call->name != "prefetch" && !is_barrier(s)) {
            for (const Access& a : call->reads) touch({.buffer = a.buffer, .anywhere = true, .stmt = s}, all);
            for (const Access& a : call->writes)
                touch({.buffer = a.buffer, .anywhere = true, .writes = true, .stmt = s}, all);
        }
        return one_step(std::move(all));
    }

    // Touches of one statement.
    Parts one_step(Touches all) {
        compare(all, all);
        return {all, all};
    }

    static void add_where(const Touches& more, const std::vector<Expr>& conditions, Touches& to) {
        for (const Touch& t : more) {
            to.push_back(t);
            to.back().conditions.insert(to.back().conditions.end(), conditions.begin(), conditions.end());
        }
    }

    Parts then(Parts a, Parts b) {
        compare(a.tail, b.head);
        if (a.through) add_where(b.head, a.pass, a.head);
        if (b.through) add_where(a.tail, b.pass, b.tail);
        a.tail = std::move(b.tail);
        a.through &= b.through;
        a.pass.insert(a.pass.end(), b.pass.begin(), b.pass.end());
        return a;
    }

    Parts reads_of(const Expr& e, const Stmt& s) {
        Touches all;
        read(e, s, all);
        return one_step(std::move(all));
    }

    Parts walk_loop(const Stmt& s, const For& loop) {
        Parts before = reads_of(loop.extent, s);
        const bool in_step = threads_ && has_barrier(loop.body);  // all threads are in the same iteration
        conditions_.push_back(lt(loop.var, loop.extent));
        if (!in_step) own_.push_back(loop.var.node().name);
        Parts body = walk(loop.body);
        if (!in_step) own_.pop_back();
        conditions_.pop_back();
        if (in_step) {
            const bool through = body.through;
            join_iterations(body, loop);
            body.through |= bounds(loop.extent).low.value_or(0) < 1;
            body.pass.clear();
            if (!through) body.pass.push_back(le(loop.extent, 0));
        }
        return then(std::move(before), std::move(body));
    }

    // From one iteration of a loop with barriers to the next.
    void join_iterations(Parts& body, const For& loop) {
        const std::string& name = loop.var.node().name;
        if (!body.through) {
            Touches next;
            add_where(at(body.head, {{name, loop.var + 1}}), {lt(loop.var + 1, loop.extent)}, next);
            compare(body.tail, next);
            body.head = at(std::move(body.head), {{name, 0}});
            body.tail = at(std::move(body.tail), {{name, loop.extent - 1}});
            return;
        }
        for (Touches* list : {&body.head, &body.tail})  // there may be no barrier in many iterations
            for (Touch& t : *list) t.own.push_back(name);
        compare(body.tail, body.head);
    }

    static Touches at(Touches all, const Bindings& bindings) {
        for (Touch& t : all)
            for (auto* list : {&t.indices, &t.conditions})
                for (Expr& e : *list) e = substitute(e, bindings);
        return all;
    }

    Parts walk_branch(const Stmt& s, const If& branch) {
        Parts before = reads_of(branch.condition, s);
        conditions_.push_back(branch.condition);
        Parts taken = walk(branch.then);
        conditions_.back() = logical_not(branch.condition);
        Parts other = walk(branch.otherwise);
        conditions_.pop_back();
        // Where there is a barrier in it, all threads go one way.
        if (!threads_ || !has_barrier(s)) compare(taken.head, other.head);
        for (auto list : {&Parts::head, &Parts::tail})
            (taken.*list).insert((taken.*list).end(), (other.*list).begin(), (other.*list).end());
        if (taken.through && !other.through)
            taken.pass.push_back(branch.condition);
        else if (!taken.through && other.through)
            taken.pass = std::move(other.pass), taken.pass.push_back(logical_not(branch.condition));
        else
            taken.pass.clear();
        taken.through |= other.through;
        return then(std::move(before), std::move(taken));
    }

    // The loads of an expression. Those in a branch of a Select happen where it is taken.
    void read(const Expr& e, const Stmt& s, Touches& to) {
        if (!e.node().reads) return;
        if (e.is(ExprKind::Select)) {
            read(e.arg(0), s, to);
            conditions_.push_back(e.arg(0));
            read(e.arg(1), s, to);
            conditions_.back() = logical_not(e.arg(0));
            read(e.arg(2), s, to);
            conditions_.pop_back();
            return;
        }
        for (const Expr& arg : e.args()) read(arg, s, to);
        if (e.is(ExprKind::Load)) touch({.buffer = e.node().slot, .indices = e.args(), .stmt = s}, to);
    }

    void touch(Touch t, Touches& to) {
        const Scope scope = kernel_.buffers[static_cast<size_t>(t.buffer)].scope;
        const bool visible = (scope == Scope::Global && global_) || (threads_ && scope == Scope::Shared);
        if (!visible || !at_once_.written.contains(t.buffer)) return;
        t.conditions = conditions_;
        t.own = own_;
        to.push_back(std::move(t));
    }

    void compare(const Touches& some, const Touches& others) {
        for (const Touch& a : some)
            for (const Touch& b : others) {
                if (!status_.ok()) return;
                if (a.buffer != b.buffer || (!a.writes && !b.writes)) continue;
                if (may_meet(a, b, at_once_, kernel_)) status_ = race(a, b);
            }
    }

    std::string described(const Touch& t) const {
        const SlotNames names = buffer_names(kernel_.buffers);
        if (t.anywhere) return fmt::format("{} elements of {}", t.writes ? "writes" : "reads", names(t.buffer));
        return fmt::format("{} {}", t.writes ? "writes" : "reads", access_text({t.buffer, t.indices}, names));
    }

    Error race(const Touch& a, const Touch& b) const {
        const bool swap = !a.writes && b.writes;
        const Touch &first = swap ? b : a, &second = swap ? a : b;
        Error error(Code::E0601, "two {} may touch one element: one {}, another {}",
                    threads_ ? "threads of a block" : "blocks", described(first), described(second));
        error = std::move(error)
                    .at("kernel " + name_text(kernel_.name))
                    .note("{}", first_line(first.stmt, kernel_.buffers));
        if (!threads_)
            return std::move(error).hint("blocks cannot wait for each other: each needs elements of its own");
        return std::move(error).hint(
            "put \"call barrier(; ; )\" between them, or give each thread elements of its own, by indices or guards "
            "that "
            "are linear in the loops' variables");
    }
};

// Finds the nests, with the conditions around them.
class NestFinder {
  public:
    NestFinder(const Kernel& kernel, bool global) : kernel_(kernel), global_(global) {}

    Status walk(const Stmt& s) {
        if (!s) return {};
        if (const Seq* list = s->as<Seq>())
            for (const Stmt& each : list->stmts) TRY(walk(each));
        if (const Alloc* a = s->as<Alloc>()) TRY(walk(a->body));
        if (const If* branch = s->as<If>()) {
            conditions_.push_back(branch->condition);
            TRY(walk(branch->then));
            conditions_.back() = logical_not(branch->condition);
            TRY(walk(branch->otherwise));
            conditions_.pop_back();
        }
        const For* loop = s->as<For>();
        if (!loop) return {};
        if (loop->kind != LoopKind::Bound) {
            conditions_.push_back(lt(loop->var, loop->extent));
            TRY(walk(loop->body));
            conditions_.pop_back();
            return {};
        }
        const BoundNest nest = bound_nest(*loop);
        const std::set<int> written = written_buffers(nest.body);
        const bool before = global_;
        global_ &= !loop->notes.contains(kInstances);
        TRY(RaceFinder(kernel_, nest, conditions_, written, global_).run(nest.body));
        const size_t around = conditions_.size();
        for (const For* each : nest.loops) conditions_.push_back(lt(each->var, each->extent));
        TRY(walk(nest.body));
        conditions_.resize(around);
        global_ = before;
        return {};
    }

  private:
    const Kernel& kernel_;
    bool global_;
    std::vector<Expr> conditions_;
};

bool is_axis(std::string_view axis, std::string_view of) {
    return axis.size() == of.size() + 2 && axis.starts_with(of) && axis[of.size()] == '.' && axis.back() >= 'x' &&
           axis.back() <= 'z';
}

}  // namespace

bool is_block_axis(std::string_view axis) { return is_axis(axis, "block"); }
bool is_thread_axis(std::string_view axis) { return is_axis(axis, "thread"); }

bool is_barrier(const Stmt& s) {
    const Call* call = s ? s->as<Call>() : nullptr;
    return call && call->name == "barrier";
}

bool has_barrier(const Stmt& s) {
    bool found = false;
    visit(s, [&](const Stmt& x) { found |= is_barrier(x); });
    return found;
}

BoundNest bound_nest(const For& first) {
    BoundNest nest{{&first}, first.body};
    for (;;) {
        const For* inner = nest.body ? nest.body->as<For>() : nullptr;
        if (!inner || inner->kind != LoopKind::Bound || is_block_axis(inner->axis) != is_block_axis(first.axis))
            return nest;
        nest.loops.push_back(inner);
        nest.body = inner->body;
    }
}

std::set<int> written_buffers(const Stmt& s) {
    std::set<int> written;
    visit(s, [&](const Stmt& x) {
        if (const Store* to = x->as<Store>()) written.insert(to->to.buffer);
        if (const Call* call = x->as<Call>())
            for (const Access& a : call->writes) written.insert(a.buffer);
    });
    return written;
}

Status check_races(const Kernel& kernel, bool global) {
    if (!has_bound_loop(kernel.body)) return {};
    const Kernel written_out = expand_intrinsics(kernel);
    return NestFinder(written_out, global).walk(written_out.body);
}

}  // namespace tessera
