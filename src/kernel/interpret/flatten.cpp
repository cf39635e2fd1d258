#include <fmt/format.h>

#include <unordered_map>

#include "base/check.h"
#include "kernel/interpret/flat_code.h"
#include "kernel/ir/atomics.h"
#include "kernel/ir/races.h"
#include "kernel/ir/text.h"
#include "kernel/ir/tile_calls.h"

namespace tessera {
namespace {

using Op = FlatOp;
using Instructions = std::vector<FlatInstruction>;

ExprKind kind_of(ReduceOp op) {
    constexpr ExprKind kKinds[] = {ExprKind::Add, ExprKind::Mul, ExprKind::Min, ExprKind::Max};
    return kKinds[static_cast<int>(op)];
}

FlatInstruction jump(Op op, int a, size_t distance) { return {.op = op, .a = a, .c = static_cast<int>(distance)}; }

class Flattener {
  public:
    Flattener(const Kernel& kernel, bool backwards) : kernel_(kernel), backwards_(backwards) {
        out_.sizes.resize(kernel.buffers.size());
        out_.strides.resize(kernel.buffers.size());
        levels_.emplace_back();
        for (const std::string& name : kernel.symbols) {
            int r = fresh();
            out_.symbols[name] = r;
            variables_[name] = {r, 0};
        }
    }

    Result<FlatCode> run() {
        TRY(statement(kernel_.body));
        out_.instructions = std::move(levels_[0].first);
        append(out_.instructions, levels_[0].code);
        return std::move(out_);
    }

  private:
    struct Held {
        int reg;
        size_t level;  // of the loop in whose iteration it is computed; 0: before all
    };
    struct Level {
        Instructions first;  // in each iteration, before the code
        Instructions code;
        std::vector<Expr> held;           // what is forgotten when the loop ends
        std::vector<size_t> leaves = {};  // jumps of the code that leave the loop
    };

    const Kernel& kernel_;
    const bool backwards_;
    FlatCode out_;
    std::vector<Level> levels_;
    std::unordered_map<std::string, Held> variables_;
    std::unordered_map<Expr, Held, ExprHash> pure_;
    std::unordered_map<Expr, int, ExprHash> read_;  // with loads in it; good for one statement, and a branch of it
    std::unordered_map<Expr, int, ExprHash> constants_;
    std::vector<int> bound_;  // registers of the loops over blocks around
    Stmt stmt_;
    bool atomic_ = false;  // what is accessed is part of an atomic update

    static void append(Instructions& to, const Instructions& from) { to.insert(to.end(), from.begin(), from.end()); }

    int fresh(FlatValue value = {.integer = 0}) {
        out_.registers.push_back(value);
        return static_cast<int>(out_.registers.size()) - 1;
    }

    void emit(FlatInstruction i) { levels_.back().code.push_back(i); }

    int value(const Expr& e) { return e.node().reads ? reading(e) : pure(e).reg; }

    int constant(const Expr& e) {
        auto [at, is_new] = constants_.try_emplace(e, 0);
        if (!is_new) return at->second;
        const ExprNode& n = e.node();
        FlatValue v{.integer = n.integer};
        if (is_float(n.dtype)) v.real = n.dtype == DType::f64 ? n.real : static_cast<float>(n.real);
        at->second = fresh(v);
        return at->second;
    }

    Held pure(const Expr& e) {
        if (e.is(ExprKind::Const)) return {constant(e), 0};
        if (e.is(ExprKind::Var)) return variables_.at(e.node().name);
        if (auto found = pure_.find(e); found != pure_.end()) return found->second;
        std::vector<int> args;
        size_t level = 0;
        for (const Expr& a : e.args()) {
            Held arg = pure(a);
            args.push_back(arg.reg);
            level = std::max(level, arg.level);
        }
        Held held{apply(e, args, levels_[level].first), level};
        pure_.emplace(e, held);
        levels_[level].held.push_back(e);
        return held;
    }

    int reading(const Expr& e) {
        if (auto found = read_.find(e); found != read_.end()) return found->second;
        int reg = e.is(ExprKind::Select) ? branches(e) : -1;
        if (reg < 0) {
            std::vector<int> args;
            for (const Expr& a : e.args()) args.push_back(value(a));
            if (e.is(ExprKind::Load)) {
                reg = fresh();
                emit({.op = Op::Load, .dtype = e.dtype(), .out = reg, .b = access(e.node().slot, args)});
            } else {
                reg = apply(e, args, levels_.back().code);
            }
        }
        read_.emplace(e, reg);
        return reg;
    }

    // A Select of which a branch reads.
    int branches(const Expr& e) {
        int condition = value(e.arg(0)), out = fresh();
        Instructions before = std::move(levels_.back().code);
        auto branch = [&](const Expr& x) {
            auto known = read_;
            levels_.back().code.clear();
            int reg = value(x);
            emit({.op = Op::Move, .out = out, .a = reg});
            read_ = std::move(known);
            return std::move(levels_.back().code);
        };
        Instructions then = branch(e.arg(1)), otherwise = branch(e.arg(2));
        levels_.back().code = std::move(before);
        choose(condition, std::move(then), otherwise);
        return out;
    }

    void choose(int condition, Instructions then, const Instructions& otherwise) {
        if (!otherwise.empty()) then.push_back(jump(Op::Jump, 0, otherwise.size()));
        emit(jump(Op::JumpUnless, condition, then.size()));
        append(levels_.back().code, then);
        append(levels_.back().code, otherwise);
    }

    int access(int buffer, std::vector<int> indices) {
        out_.accesses.push_back({buffer, std::move(indices), stmt_, atomic_});
        return static_cast<int>(out_.accesses.size()) - 1;
    }
    int access(const Access& a) {
        std::vector<int> indices;
        for (const Expr& e : a.indices) indices.push_back(value(e));
        return access(a.buffer, std::move(indices));
    }

    int apply(const Expr& e, const std::vector<int>& args, Instructions& to) {
        const ExprNode& n = e.node();
        FlatInstruction i{.op = Op::Apply, .kind = n.kind, .fn = n.fn, .dtype = n.dtype};
        i.from = n.args[0].dtype();
        i.a = args[0];
        if (n.kind == ExprKind::Select) {
            i = {.op = Op::Select, .out = fresh(), .a = args[0], .b = args[1], .c = args[2]};
            to.push_back(i);
            return i.out;
        }
        if (i.from == DType::i64) {
            if (n.kind == ExprKind::Add) i.op = Op::AddInt;
            if (n.kind == ExprKind::Mul) i.op = Op::MulInt;
            if (n.kind == ExprKind::Lt) i.op = Op::LtInt;
        } else if (is_float(i.from)) {
            if (n.kind == ExprKind::Add) i.op = Op::AddReal;
            if (n.kind == ExprKind::Sub) i.op = Op::SubReal;
            if (n.kind == ExprKind::Mul) i.op = Op::MulReal;
        }
        for (size_t k = 1; k < args.size() || k == 1; ++k) {  // longer lists fold from the left
            i.b = k < args.size() ? args[k] : i.a;
            i.out = fresh();
            to.push_back(i);
            i.a = i.out;
        }
        return i.out;
    }

    Status statement(const Stmt& s) {
        if (!s) return {};
        if (const Seq* list = s->as<Seq>()) {
            for (const Stmt& each : list->stmts) TRY(statement(each));
            return {};
        }
        read_.clear();
        stmt_ = s;
        if (const For* loop = s->as<For>()) return flatten_loop(*loop);
        if (const If* branch = s->as<If>()) return flatten_branch(*branch);
        if (const Alloc* a = s->as<Alloc>()) return flatten_alloc(*a);
        if (const Store* to = s->as<Store>()) {
            int v = value(to->value);
            FlatInstruction i{.op = to->combine ? Op::Combine : Op::Store, .dtype = to->value.dtype(), .a = v};
            if (to->combine) i.kind = kind_of(*to->combine);
            i.from = i.dtype;
            i.b = access(to->to);
            emit(i);
        }
        if (is_barrier(s)) emit({.op = Op::Barrier});
        if (const Call* call = s->as<Call>(); call && is_atomic(*call)) return flatten_atomic(*call);
        if (const Call* call = s->as<Call>(); call && is_tile_language_call(*call)) return flatten_tile_call(*call);
        if (const Call* call = s->as<Call>())
            if (call->name != "prefetch" && call->name != "barrier")
                return Error(Code::E0601, "there is no intrinsic {}", name_text(call->name))
                    .at("kernel " + name_text(kernel_.name))
                    .note("{}", first_line(s, kernel_.buffers));
        return {};
    }

    Status flatten_tile_call(const Call& call) {
        if (call.name == kLeave) {
            emit(jump(Op::JumpUnless, value(call.args[0]), 1));
            levels_.back().leaves.push_back(levels_.back().code.size());
            emit(jump(Op::Jump, 0, 0));
            return {};
        }
        if (call.name == kBits) {
            const auto dtype = [&](const Access& a) { return kernel_.buffers[static_cast<size_t>(a.buffer)].dtype; };
            FlatInstruction i{.op = Op::Bits, .dtype = dtype(call.writes[0]), .from = dtype(call.reads[0])};
            i.a = value(load(call.reads[0].buffer, i.from, call.reads[0].indices));
            i.out = fresh();
            emit(i);
            emit({.op = Op::Store, .dtype = i.dtype, .from = i.dtype, .a = i.out, .b = access(call.writes[0])});
            return {};
        }
        FlatReport report{.number = *call.args[0].as_int(), .values = {}};
        for (size_t k = 1; k < call.args.size(); ++k) report.values.push_back(value(call.args[k]));
        out_.reports.push_back(std::move(report));
        emit({.op = Op::Report, .b = static_cast<int>(out_.reports.size()) - 1});
        return {};
    }

    Status flatten_atomic(const Call& call) {
        const Access& at = call.writes.back();
        const DType dtype = kernel_.buffers[static_cast<size_t>(at.buffer)].dtype;
        atomic_ = true;
        const Expr element = load(at.buffer, dtype, at.indices);
        const int old = value(element), made = value(updated(call, element));
        const auto set = [&](const Access& to, int from) {
            FlatInstruction i{.op = Op::Store, .dtype = dtype, .a = from};
            i.from = dtype;
            i.b = access(to);
            emit(i);
        };
        if (call.writes.size() > 1) set(call.writes[0], old);
        set(at, made);
        atomic_ = false;
        return {};
    }

    // Where blocks (or iterations of a Parallel loop) begin.
    void begin_blocks(const For& loop) {
        if (loop.kind == LoopKind::Bound) {
            bound_.push_back(variables_[loop.var.node().name].reg);
            if (bound_nest(loop).loops.size() > 1) return;
        }
        std::vector<int> vars = bound_;
        if (loop.kind == LoopKind::Parallel) vars = {variables_[loop.var.node().name].reg};
        out_.nests.push_back({std::move(vars), {}});
        emit({.op = Op::Block, .b = static_cast<int>(out_.nests.size()) - 1});
    }

    Status flatten_threads(const For& first) {
        const BoundNest nest = bound_nest(first);
        FlatNest flat;
        for (const For* loop : nest.loops) {
            flat.extents.push_back(value(loop->extent));
            flat.vars.push_back(fresh());
            variables_[loop->var.node().name] = {flat.vars.back(), levels_.size()};
        }
        visit(nest.body, [&](const Stmt& s) {
            if (const Alloc* a = s->as<Alloc>()) flat.buffers.push_back(a->buffer);
        });
        Instructions body = TRY(level(nest.body, [] {}));
        for (const For* loop : nest.loops) variables_.erase(loop->var.node().name);
        out_.nests.push_back(std::move(flat));
        const int length = static_cast<int>(body.size());
        emit({.op = Op::Threads, .b = static_cast<int>(out_.nests.size()) - 1, .c = length + 1});
        append(levels_.back().code, body);
        emit({.op = Op::ThreadsEnd});
        return {};
    }

    // A body whose variables are new, with what is computed from them alone first.
    Result<Instructions> level(const Stmt& body, const std::function<void()>& begin) {
        levels_.emplace_back();
        begin();
        TRY(statement(body));
        Level made = std::move(levels_.back());
        levels_.pop_back();
        for (const Expr& e : made.held) pure_.erase(e);
        const size_t before = made.first.size();
        append(made.first, made.code);
        for (size_t at : made.leaves) made.first[before + at].c = static_cast<int>(made.first.size() - before - at);
        return std::move(made.first);
    }

    Status flatten_loop(const For& loop) {
        if (levels_.size() > 1 || (loop.kind != LoopKind::Parallel && loop.kind != LoopKind::Bound))
            return flatten_nest(loop);
        bound_.clear();
        emit({.op = Op::Launch, .a = loop.kind == LoopKind::Parallel});
        TRY(flatten_nest(loop));
        emit({.op = Op::Launch});
        return {};
    }

    Status flatten_nest(const For& loop) {
        if (is_thread_loop(loop)) return flatten_threads(loop);
        int extent = value(loop.extent), var = fresh();
        const std::string& name = loop.var.node().name;
        variables_[name] = {var, levels_.size()};
        Instructions body = TRY(level(loop.body, [&] {
            if (loop.kind == LoopKind::Parallel || loop.kind == LoopKind::Bound) begin_blocks(loop);
        }));
        variables_.erase(name);
        bool back = backwards_ && loop.kind != LoopKind::Serial && loop.kind != LoopKind::Unrolled;
        int length = static_cast<int>(body.size());
        emit({.op = back ? Op::LoopBeginBack : Op::LoopBegin, .out = var, .a = extent, .c = length + 1});
        append(levels_.back().code, body);
        emit({.op = back ? Op::LoopEndBack : Op::LoopEnd, .out = var, .a = extent, .c = -length - 1});
        return {};
    }

    Status flatten_branch(const If& branch) {
        int condition = value(branch.condition);
        Instructions before = std::move(levels_.back().code);
        levels_.back().code.clear();
        TRY(statement(branch.then));
        Instructions then = std::move(levels_.back().code);
        levels_.back().code.clear();
        TRY(statement(branch.otherwise));
        Instructions otherwise = std::move(levels_.back().code);
        levels_.back().code = std::move(before);
        choose(condition, std::move(then), otherwise);
        return {};
    }

    Status flatten_alloc(const Alloc& a) {
        const Buffer& b = kernel_.buffers[static_cast<size_t>(a.buffer)];
        for (const Expr& e : b.shape) out_.sizes[static_cast<size_t>(a.buffer)].push_back(value(e));
        for (const Expr& e : b.strides) out_.strides[static_cast<size_t>(a.buffer)].push_back(value(e));
        emit({.op = Op::Allocate, .b = a.buffer});
        return statement(a.body);
    }
};

}  // namespace

Result<FlatCode> flatten(const Kernel& kernel, bool backwards) { return Flattener(kernel, backwards).run(); }

}  // namespace tessera
