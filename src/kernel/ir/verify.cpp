// What holds of every kernel. Above the essay of kernel.h:
//
// Buffers and sizes
//   names of buffers are unique and not empty, and so are names of sizes; parameters come first and are all Global
//   elements are numbers or bools; sizes and strides are i64, one stride for each dimension where there are any
//   sizes of parameters are over the kernel's sizes alone; of the others, over what is known where they are allocated
//   a buffer that is no parameter has one Alloc, is Shared, Local or Register, and is used inside that Alloc alone
// Variables
//   names of loops' variables are unique, and none is the name of a size
//   an expression uses sizes and variables of loops around it; what it claims of their bounds follows from the extents
// Expressions
//   no Reduce, no strings, no complex numbers; loads and stores have an i64 index for each dimension
//   a load has its buffer's dtype, and so has what is stored; a bool is combined by Min and Max only
//   conditions are bool, extents i64
// Loops
//   a Parallel loop stands inside sequences alone; a Bound one has an axis, no other kind has, and not one of a loop
//   around it Vector and Unrolled loops have a constant extent, at least 0; inside a Vector loop there are no loops but
//   Unrolled ones, no Alloc and no Call iterations of Parallel and Vector loops write different elements of what
//   outlives them: the indices, or a condition around the store inside the loop, mention the variable (a Vector loop
//   may combine into one element)
// Register buffers
//   sizes are constant; indices mention variables of Unrolled and Vector loops alone, and no loads
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kernel/ir/check_expr.h"
#include "kernel/ir/regions.h"
#include "kernel/ir/text.h"

namespace tessera {
namespace {

using Problem = std::optional<std::string>;

bool any_mentions(const std::vector<Expr>& list, const std::string& name) {
    return std::any_of(list.begin(), list.end(), [&](const Expr& e) { return mentions(e, name); });
}

class Verifier {
  public:
    explicit Verifier(const Kernel& kernel) : kernel_(kernel), readable_([this](int slot) { return live(slot); }) {
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
        return {};
    }

  private:
    struct Loop {
        const For* loop;
        size_t conditions;  // around it
        size_t allocs;
    };

    const Kernel& kernel_;
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
            if (!problem && x.is(ExprKind::Load)) problem = registers({x.node().slot, x.args()});
        });
        return problem;
    }

    Problem access(const Access& a) const {
        if (Problem problem = check_access(a, kernel_.buffers, variables_, readable_)) return problem;
        for (const Expr& index : a.indices)
            if (Problem problem = expr(index)) return problem;
        return registers(a);
    }

    Problem registers(const Access& a) const {
        const Buffer& b = kernel_.buffers[static_cast<size_t>(a.buffer)];
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
        if (loop.kind == LoopKind::Parallel && !(loops_.empty() && conditions_.empty() && allocs_.empty()))
            return "a parallel loop inside another statement";
        if ((loop.kind == LoopKind::Bound) == loop.axis.empty())
            return loop.axis.empty() ? "a bound loop without an axis" : "an axis of a loop that is not bound";
        for (const Loop& outer : loops_)
            if (!loop.axis.empty() && outer.loop->axis == loop.axis)
                return fmt::format("two loops, one in the other, on the axis {}", name_text(loop.axis));
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
            LoopKind kind = l.loop->kind;
            if (kind != LoopKind::Parallel && kind != LoopKind::Vector) continue;
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
        return std::nullopt;
    }
};

}  // namespace

Status verify(const Kernel& kernel) { return Verifier(kernel).run(); }

}  // namespace tessera
