// What holds of every kernel. Above the essay of kernel.h:
//
// Buffers and sizes
//   names of buffers are unique and not empty, and so are names of sizes; parameters come first and are all Global
//   elements are numbers or bools; sizes and strides are i64, one stride for each dimension where there are any
//   sizes of parameters are over the kernel's sizes alone; of the others, over what is known where they are allocated
//   a buffer that is no parameter has one Alloc, is Shared, Local or Register, and is used inside that Alloc alone
//   Shared buffers are allocated inside loops over blocks and outside those over threads; what threads use of Local and
//   Register buffers is allocated inside their loops
// Variables
//   names of loops' variables are unique, and none is the name of a size
//   an expression uses sizes and variables of loops around it; what it claims of their bounds follows from the extents
// Expressions
//   no Reduce, no strings, no complex numbers; loads and stores have an i64 index for each dimension
//   a load has its buffer's dtype, and so has what is stored; a bool is combined by Min and Max only
//   conditions are bool, extents i64
// Loops
//   a Parallel loop stands inside sequences alone, and so does a Bound one that no Bound loop is around
//   a Bound loop has an axis (block.x ... thread.z), no other kind has, and not one of a loop around it; its extent is
//   not read from a buffer. Loops over blocks stand directly in one another, loops over threads inside those or alone,
//   directly in one another; extents of either mention no variable of the same
//   Vector and Unrolled loops have a constant extent, at least 0; inside a Vector loop there are no loops but Unrolled
//   ones, no Alloc and no Call
//   iterations of Parallel and Vector loops write different elements of what outlives them: the indices, or a condition
//   around the store inside the loop, mention the variable (a Vector loop may combine into one element)
// Blocks and threads
//   a barrier stands inside a loop over threads, and in it only in branches and loops whose condition or extent is the
//   same for all threads of the block: it mentions no variable of theirs, and reads nothing that the kernel writes
//   tiles are copied to, waited for and freed by turns, where they are freed (tile_copy.h); a product that goes on
//   after its call is waited for in the same sequence, those that were begun first before others (group_steps.h)
//   no two blocks touch one element of Global memory, and no two threads of a block one of Global or Shared memory with
//   no barrier between, where one of them writes (races.cpp)
// Register buffers
//   sizes are constant; indices mention variables of Unrolled and Vector loops alone, and no loads
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kernel/ir/atomics.h"
#include "kernel/ir/check_expr.h"
#include "kernel/ir/group_steps.h"
#include "kernel/ir/races.h"
#include "kernel/ir/regions.h"
#include "kernel/ir/text.h"
#include "kernel/ir/tile_calls.h"
#include "kernel/ir/tile_copy.h"
#include "kernel/ir/touches.h"

namespace tessera {
namespace {

using Problem = std::optional<std::string>;

bool any_mentions(const std::vector<Expr>& list, const std::string& name) {
    return std::any_of(list.begin(), list.end(), [&](const Expr& e) { return mentions(e, name); });
}

class Verifier {
  public:
    // `races`: also between iterations of Parallel loops.
    Verifier(const Kernel& kernel, bool races)
        : kernel_(kernel),
          races_(races),
          written_(written_buffers(kernel.body)),
          readable_([this](int slot) { return live(slot); }) {
        for (const std::string& s : kernel.symbols) variables_.emplace(s, symbol_bounds());
    }

    Status run() {
        if (Problem problem = check_buffers(kernel_.buffers, kernel_.params, kernel_.symbols))
            return Error(Code::E0601, "{}", *problem).at("kernel " + name_text(kernel_.name));
        TRY(statement(kernel_.body));
        for (size_t i = kernel_.params; i < kernel_.buffers.size(); ++i)
            if (!allocated_.contains(static_cast<int>(i)))
                return Error(Code::E0601, "{} is neither a parameter nor allocated", name_text(kernel_.buffers[i].name))
                    .at("kernel " + name_text(kernel_.name));
        for (const Problem& problem : {misused_tile(kernel_), misused_product(kernel_.body)})
            if (problem) return Error(Code::E0601, "{}", *problem).at("kernel " + name_text(kernel_.name));
        return {};
    }

  private:
    struct Loop {
        const For* loop;
        size_t conditions;  // around it
        size_t allocs;
    };

    const Kernel& kernel_;
    const bool races_;
    const std::set<int> written_;
    std::function<bool(int)> readable_;
    VariableBounds variables_;
    std::set<std::string> used_names_;
    std::set<int> allocated_;
    std::vector<int> allocs_;  // around the statement, and so are:
    std::vector<Loop> loops_;
    std::vector<Expr> conditions_;

    bool live(int slot) const {
        return slot < static_cast<int>(kernel_.params) ||
               std::find(allocs_.begin(), allocs_.end(), slot) != allocs_.end();
    }

    Error broken(const Stmt& s, const std::string& problem) const {
        return Error(Code::E0601, "{}", problem)
            .at("kernel " + name_text(kernel_.name))
            .note("{}", first_line(s, kernel_.buffers));
    }

    Problem expr(const Expr& e) const {
        if (Problem problem = check_expr(e, kernel_.buffers, variables_, readable_)) return problem;
        Problem problem;
        visit(e, [&](const Expr& x) {
            if (!problem && x.is(ExprKind::Load)) problem = placed({x.node().slot, x.args()});
        });
        return problem;
    }

    Problem access(const Access& a) const {
        if (Problem problem = check_access(a, kernel_.buffers, variables_, readable_)) return problem;
        for (const Expr& index : a.indices)
            if (Problem problem = expr(index)) return problem;
        return placed(a);
    }

    // The outermost loop over threads around the statement.
    const Loop* threads() const {
        auto found = std::find_if(loops_.begin(), loops_.end(), [](const Loop& l) { return is_thread_loop(*l.loop); });
        return found == loops_.end() ? nullptr : &*found;
    }

    // Whether a buffer of its scope can be used here, so.
    Problem placed(const Access& a) const {
        const Buffer& b = kernel_.buffers[static_cast<size_t>(a.buffer)];
        if (b.scope == Scope::Global || b.scope == Scope::Shared) return std::nullopt;
        if (const Loop* outer = threads()) {
            auto own = allocs_.begin() + static_cast<ptrdiff_t>(outer->allocs);
            if (std::find(own, allocs_.end(), a.buffer) == allocs_.end())
                return fmt::format("{} is of one thread, and allocated outside the loop over threads",
                                   name_text(b.name));
        }
        if (b.scope != Scope::Register) return std::nullopt;
        for (const Expr& index : a.indices) {
            if (index.node().reads) return fmt::format("an index of {} in registers is loaded", name_text(b.name));
            for (const std::string& name : free_symbols(index)) {
                auto of = std::find_if(loops_.begin(), loops_.end(),
                                       [&](const Loop& l) { return l.loop->var.node().name == name; });
                if (of == loops_.end() || (of->loop->kind != LoopKind::Unrolled && of->loop->kind != LoopKind::Vector))
                    return fmt::format("{} in registers is indexed by {}, which no unrolled or vector loop runs over",
                                       name_text(b.name), name_text(name));
            }
        }
        return std::nullopt;
    }

    Status statement(const Stmt& s) {
        if (!s) return {};
        if (const Seq* list = s->as<Seq>()) {
            for (const Stmt& each : list->stmts) TRY(statement(each));
            return {};
        }
        Problem problem;
        if (const For* loop = s->as<For>()) problem = check_loop(*loop);
        if (const If* branch = s->as<If>()) problem = check_branch(*branch);
        if (const Store* to = s->as<Store>()) problem = check_store(*to);
        if (const Alloc* a = s->as<Alloc>()) problem = check_alloc(*a);
        if (const Call* call = s->as<Call>()) problem = check_call(*call);
        if (problem) return broken(s, *problem);
        return inside(s);
    }

    // The statements in this one, with it around them.
    Status inside(const Stmt& s) {
        if (const For* loop = s->as<For>()) {
            loops_.push_back({loop, conditions_.size(), allocs_.size()});
            variables_.emplace(loop->var.node().name, loop_bounds(loop->extent));
            TRY(statement(loop->body));
            variables_.erase(loop->var.node().name);
            loops_.pop_back();
        }
        if (const If* branch = s->as<If>()) {
            conditions_.push_back(branch->condition);
            TRY(statement(branch->then));
            TRY(statement(branch->otherwise));
            conditions_.pop_back();
        }
        if (const Alloc* a = s->as<Alloc>()) {
            allocs_.push_back(a->buffer);
            TRY(statement(a->body));
            allocs_.pop_back();
        }
        return {};
    }

    bool in_vector() const {
        return std::any_of(loops_.begin(), loops_.end(),
                           [](const Loop& l) { return l.loop->kind == LoopKind::Vector; });
    }

    Problem check_loop(const For& loop) {
        if (!loop.var.is(ExprKind::Var)) return "a loop over what is no variable";
        const std::string& name = loop.var.node().name;
        if (loop.extent.dtype() != DType::i64)
            return fmt::format("an extent of type {}", dtype_name(loop.extent.dtype()));
        if (Problem problem = expr(loop.extent)) return problem;
        if (variables_.contains(name) && !used_names_.contains(name))
            return fmt::format("the variable {} has the name of a size", name_text(name));
        if (!used_names_.insert(name).second) return fmt::format("two loops run over {}", name_text(name));
        if (Problem problem = check_expr(loop.var, {}, {{name, loop_bounds(loop.extent)}}, readable_)) return problem;
        std::optional<int64_t> extent = loop.extent.as_int();
        bool expanded = loop.kind == LoopKind::Vector || loop.kind == LoopKind::Unrolled;
        if (expanded && (!extent || *extent < 0))
            return fmt::format("the extent of a loop of kind {} is no constant", loop_kind_name(loop.kind));
        if (in_vector() && loop.kind != LoopKind::Unrolled)
            return fmt::format("a loop of kind {} inside a vector loop", loop_kind_name(loop.kind));
        if (loop.kind == LoopKind::Parallel && !at_top()) return "a parallel loop inside another statement";
        if ((loop.kind == LoopKind::Bound) == loop.axis.empty())
            return loop.axis.empty() ? "a bound loop without an axis" : "an axis of a loop that is not bound";
        return loop.kind == LoopKind::Bound ? check_bound(loop) : std::nullopt;
    }

    bool at_top() const { return loops_.empty() && conditions_.empty() && allocs_.empty(); }

    Problem check_bound(const For& loop) const {
        const bool block = is_block_axis(loop.axis);
        if (!block && !is_thread_axis(loop.axis))
            return fmt::format("the axis {} is none of block.x, .y, .z and thread.x, .y, .z", name_text(loop.axis));
        if (loop.extent.node().reads) return "the extent of a bound loop is read from a buffer";
        bool in_bound = false;
        for (const Loop& outer : loops_) {
            in_bound |= outer.loop->kind == LoopKind::Bound;
            if (outer.loop->axis == loop.axis)
                return fmt::format("two loops, one in the other, on the axis {}", name_text(loop.axis));
            if (block && is_thread_loop(*outer.loop)) return "a loop over blocks inside a loop over threads";
            const bool alike = block ? is_block_loop(*outer.loop) : is_thread_loop(*outer.loop);
            if (alike && mentions(loop.extent, outer.loop->var.node().name))
                return fmt::format(
                    "the extent of a bound loop depends on {}: blocks have one number of threads, and "
                    "launches one of blocks, along each axis",
                    name_text(outer.loop->var.node().name));
        }
        if (!in_bound && !at_top()) return "a bound loop inside another statement";
        bool around = false;
        const For* next = loop.body ? loop.body->as<For>() : nullptr;
        visit(loop.body, [&](const Stmt& s) {
            const For* inner = s->as<For>();
            around |= inner && (block ? is_block_loop(*inner) : is_thread_loop(*inner));
        });
        if (around && !(next && (block ? is_block_loop(*next) : is_thread_loop(*next))))
            return fmt::format("something stands between two loops over {}, one in the other",
                               block ? "blocks" : "threads");
        return std::nullopt;
    }

    Problem check_branch(const If& branch) {
        if (branch.condition.dtype() != DType::boolean)
            return fmt::format("a condition of type {}", dtype_name(branch.condition.dtype()));
        return expr(branch.condition);
    }

    Problem check_store(const Store& s) {
        if (Problem problem = access(s.to)) return problem;
        if (Problem problem = expr(s.value)) return problem;
        const Buffer& b = kernel_.buffers[static_cast<size_t>(s.to.buffer)];
        if (s.value.dtype() != b.dtype)
            return fmt::format("a value of {} stored into {}, which holds {}", dtype_name(s.value.dtype()),
                               name_text(b.name), dtype_name(b.dtype));
        if (b.dtype == DType::boolean && (s.combine == ReduceOp::Sum || s.combine == ReduceOp::Prod))
            return fmt::format("a sum or product of bools in {}", name_text(b.name));
        return check_race(s);
    }

    Problem check_race(const Store& s) const {
        for (const Loop& l : loops_) {
            if (l.loop->notes.contains(kInstances)) return std::nullopt;
            LoopKind kind = l.loop->kind;
            if (kind != LoopKind::Vector && (kind != LoopKind::Parallel || !races_)) continue;
            if (kind == LoopKind::Vector && s.combine) continue;
            if (l.loop->extent.as_int() && *l.loop->extent.as_int() <= 1) continue;
            auto own = allocs_.begin() + static_cast<ptrdiff_t>(l.allocs);
            if (std::find(own, allocs_.end(), s.to.buffer) != allocs_.end()) continue;
            const std::string& name = l.loop->var.node().name;
            std::vector<Expr> around(conditions_.begin() + static_cast<ptrdiff_t>(l.conditions), conditions_.end());
            for (const Loop* inner = &l + 1; inner < loops_.data() + loops_.size(); ++inner)
                around.push_back(inner->loop->extent);
            if (any_mentions(s.to.indices, name) || any_mentions(around, name)) continue;
            return fmt::format("every iteration of the {} loop over {} writes this element", loop_kind_name(kind),
                               name_text(name));
        }
        return std::nullopt;
    }

    Problem check_alloc(const Alloc& a) {
        if (a.buffer < 0 || static_cast<size_t>(a.buffer) >= kernel_.buffers.size())
            return fmt::format("there is no buffer {}", a.buffer);
        const Buffer& b = kernel_.buffers[static_cast<size_t>(a.buffer)];
        if (static_cast<size_t>(a.buffer) < kernel_.params) return fmt::format("{} is a parameter", name_text(b.name));
        if (!allocated_.insert(a.buffer).second) return fmt::format("{} is allocated twice", name_text(b.name));
        if (b.scope == Scope::Global) return fmt::format("{} is global, but no parameter", name_text(b.name));
        if (in_vector()) return "an allocation inside a vector loop";
        const bool in_block = !loops_.empty() && is_block_loop(*loops_[0].loop);
        if (b.scope == Scope::Shared && (!in_block || threads()))
            return fmt::format(
                "{} is shared by the threads of a block, and not allocated inside the loops over blocks, "
                "outside those over threads",
                name_text(b.name));
        if (Problem problem = check_sizes(b, variables_)) return problem;
        for (const Expr& size : b.shape)
            if (b.scope == Scope::Register && !size.as_int())
                return fmt::format("{} in registers has a size that is no constant", name_text(b.name));
        return std::nullopt;
    }

    Problem check_call(const Call& call) {
        if (call.name.empty()) return "a call without a name";
        if (in_vector()) return "a call inside a vector loop";
        for (const std::vector<Access>* list : {&call.writes, &call.reads})
            for (const Access& a : *list)
                if (Problem problem = access(a)) return problem;
        for (const Expr& e : call.args)
            if (Problem problem = expr(e)) return problem;
        if (is_tile_call(call)) return check_tile_call(call);
        if (is_atomic(call)) return check_atomic(call);
        if (call.name == kLeave || call.name == kBits) return check_element_call(call);
        if (is_group_step(call)) {
            if (threads()) return fmt::format("{} inside a loop over threads, and a block does it once", call.name);
            return misused_step(kernel_, call);
        }
        return call.name == "barrier" ? check_barrier(call) : std::nullopt;
    }

    Problem check_atomic(const Call& call) const {
        const size_t wanted = call.name == "atomic_compare" ? 2 : 1;
        if (call.writes.empty() || call.writes.size() > 2 || !call.reads.empty() || call.args.size() != wanted)
            return fmt::format("{} changes one element, may keep what it was, and takes {} values", call.name, wanted);
        for (const Access& a : call.writes)
            for (const Expr& e : call.args)
                if (kernel_.buffers[static_cast<size_t>(a.buffer)].dtype != e.dtype())
                    return fmt::format("{} of elements and values of different types", call.name);
        return std::nullopt;
    }

    Problem check_element_call(const Call& call) const {
        if (call.name == kLeave) {
            const bool alone = call.writes.empty() && call.reads.empty() && call.args.size() == 1;
            if (!alone || call.args[0].dtype() != DType::boolean) return "leave takes a condition";
            if (loops_.empty() || loops_.back().loop->kind != LoopKind::Serial ||
                loops_.back().conditions != conditions_.size())
                return "leave stands in a serial loop, and in nothing else";
            return std::nullopt;
        }
        const bool one = call.writes.size() == 1 && call.reads.size() == 1 && call.args.empty();
        const auto bits = [&](const Access& a) {
            return dtype_bits(kernel_.buffers[static_cast<size_t>(a.buffer)].dtype);
        };
        if (!one || bits(call.writes[0]) != bits(call.reads[0])) return "bits wants two elements of as many bits";
        return std::nullopt;
    }

    Problem check_tile_call(const Call& call) const {
        if (threads()) return fmt::format("{} inside a loop over threads, and a block does it once", call.name);
        if (call.name == kWaitTile || call.name == kFreeTile) {
            const bool one = call.writes.size() == 1 && call.reads.empty() && call.args.empty();
            const Buffer* b = one ? &kernel_.buffers[static_cast<size_t>(call.writes[0].buffer)] : nullptr;
            if (b && b->scope == Scope::Shared && b->shape.size() == 2) return std::nullopt;
            return fmt::format("{} wants one tile", call.name);
        }
        if (!tile_copy(kernel_, call))
            return fmt::format(
                "{} wants a tile in shared memory, a buffer in global memory, and two of its dimensions or places",
                call.name);
        return std::nullopt;
    }

    Problem check_barrier(const Call& call) const {
        if (!call.reads.empty() || !call.writes.empty() || !call.args.empty()) return "a barrier with arguments";
        const Loop* outer = threads();
        if (!outer) return "a barrier outside the loops over threads";
        AtOnce all{{}, written_};
        for (const Loop* l = outer; l < loops_.data() + loops_.size(); ++l)
            if (is_thread_loop(*l->loop))
                all.vars.push_back(l->loop->var);
            else if (!same_for_all(l->loop->extent, all, kernel_.params))
                return fmt::format(
                    "a barrier in the loop over {}, which may run more often in one thread than in another",
                    name_text(l->loop->var.node().name));
        for (size_t i = outer->conditions; i < conditions_.size(); ++i)
            if (!same_for_all(conditions_[i], all, kernel_.params))
                return "a barrier in a branch that not all threads of the block may take";
        return std::nullopt;
    }
};

}  // namespace

Status verify_statements(const Kernel& kernel) { return Verifier(kernel, false).run(); }

Status verify_tiles(const Kernel& kernel) {
    TRY(verify_statements(kernel));
    return check_races(kernel, false);
}

Status verify(const Kernel& kernel) {
    TRY(Verifier(kernel, true).run());
    return check_races(kernel);
}

}  // namespace tessera
