#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kMostChunks = 16;                  // that are emitted one by one
constexpr int64_t kMostLanes = 8, kMostCopied = 16;  // of a thread on a target with blocks: computed, only copied

bool mentions(const Expr& e, const std::string& var) {
    if (e.is(ExprKind::Var)) return e.node().name == var;
    return std::any_of(e.args().begin(), e.args().end(), [&](const Expr& a) { return mentions(a, var); });
}

bool any_mentions(const std::vector<Expr>& list, const std::string& var) {
    return std::any_of(list.begin(), list.end(), [&](const Expr& e) { return mentions(e, var); });
}

// In a register, while it is computed with.
int64_t computing_bytes(DType t) {
    if (t == DType::f64) return 8;
    return is_float(t) ? 4 : static_cast<int64_t>(dtype_bytes(t));
}

}  // namespace

bool Emitter::touches_registers(const For& loop) const {
    bool found = false;
    auto look = [&](int buffer, const std::vector<Expr>& indices) {
        found |= buffer >= static_cast<int>(kernel_.params) && kernel_.buffers[buffer].scope == Scope::Register &&
                 any_mentions(indices, loop.var.node().name);
    };
    visit(loop.body, [&](const Stmt& s) {
        if (const Store* st = s->as<Store>()) look(st->to.buffer, st->to.indices);
        if (const Call* call = s->as<Call>())
            for (const auto* list : {&call->writes, &call->reads})
                for (const Access& a : *list) look(a.buffer, a.indices);
    });
    visit_exprs(loop.body, [&](const Expr& e) {
        if (!e.node().reads) return;
        visit(e, [&](const Expr& x) {
            if (x.is(ExprKind::Load)) look(x.node().slot, x.args());
        });
    });
    return found;
}

// Whether every statement in it can be carried out for all lanes at once.
bool Emitter::fits_lanes(const For& loop) const {
    bool fits = true;
    const std::string& var = loop.var.node().name;
    std::vector<int> private_buffers;
    visit(loop.body, [&](const Stmt& s) {
        if (const Alloc* a = s->as<Alloc>()) {
            fits &= !plan_->in_scratch.contains(a->buffer);
            private_buffers.push_back(a->buffer);
        }
    });
    visit(loop.body, [&](const Stmt& s) {
        if (const For* inner = s->as<For>()) {
            fits &= !mentions(inner->extent, var);
            visit(inner->extent, [&](const Expr& e) {
                if (e.is(ExprKind::Load))
                    fits &= std::find(private_buffers.begin(), private_buffers.end(), e.node().slot) ==
                            private_buffers.end();
            });
        }
        fits &= !s->as<Call>();
    });
    return fits;
}

int Emitter::lanes_for(const For& loop) const {
    int64_t widest = 1;
    const std::string& var = loop.var.node().name;
    visit(loop.body, [&](const Stmt& s) {
        if (const Store* st = s->as<Store>())
            widest = std::max(widest, computing_bytes(kernel_.buffers[st->to.buffer].dtype));
    });
    visit_exprs(loop.body, [&](const Expr& e) {
        if (!e.node().reads) return;
        visit(e, [&](const Expr& x) {
            const bool counts = x.is(ExprKind::Load) ? any_mentions(x.args(), var) : x.dtype() != DType::i64;
            if (counts) widest = std::max(widest, computing_bytes(x.dtype()));
        });
    });
    return static_cast<int>(target_.machine.vector_bytes / widest);
}

// How many registers' worth of lanes to compute at a time: straight code for several of them is interleaved, and hides
// the latency of long chains of operations.
int Emitter::registers_at_once(const For& loop) const {
    bool plain = !touches_registers(loop);
    int64_t functions = 0;
    visit(loop.body, [&](const Stmt& s) { plain &= s->as<Store>() || s->as<Seq>(); });
    visit_exprs(loop.body, [&](const Expr& e) {
        if (!e.node().reads) return;
        visit(e, [&](const Expr& x) {
            functions += x.is(ExprKind::Call) && x.node().fn >= Fn::Exp && x.node().fn <= Fn::Erf;
            plain &= !x.is(ExprKind::Pow);
        });
    });
    return !plain ? 1 : functions > 1 ? 2 : 4;
}

void Emitter::emit_vector(const For& loop) {
    const auto extent = loop.extent.as_int();
    int lanes = lanes_for(loop);
    if (extent && has_blocks()) {
        lanes = static_cast<int>(
            std::bit_floor(static_cast<uint64_t>(std::min<int64_t>(*extent, bringing_ ? kMostCopied : kMostLanes))));
    } else if (extent) {
        const int at_once = lanes > 1 ? registers_at_once(loop) : 1;
        lanes = static_cast<int>(
            std::min<int64_t>(lanes * at_once, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(*extent)))));
    }
    Value* count = extent ? builder_.getInt64(*extent) : emit_alone(loop.extent);
    if (!status_.ok()) return;
    // One element after the other where there is no vector to fill.
    if (lanes <= 1) {
        if (extent && touches_registers(loop)) return emit_copies(loop, *extent);
        return emit_loop(builder_.getInt64(0), count, 1, extent.has_value(), [&](Value* i) {
            with_binding(loop.var, {i, 0, false, depth_, last_of(loop.extent)}, [&] { emit(loop.body); });
        });
    }
    open_accumulators(loop, lanes);
    int64_t done = 0;
    Value* whole = nullptr;
    if (extent) {
        const int64_t chunks = *extent / lanes;
        if (chunks <= kMostChunks || touches_registers(loop)) {
            for (; done + lanes <= *extent; done += lanes) emit_chunk(loop, nullptr, done, lanes);
        } else {
            done = chunks * lanes;
            emit_loop(builder_.getInt64(0), builder_.getInt64(done), lanes, true,
                      [&](Value* i) { emit_chunk(loop, i, 0, lanes); });
        }
    } else {
        if (bounds(loop.extent).low.value_or(-1) < 0)
            count = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, count, builder_.getInt64(0));
        whole = builder_.CreateAnd(count, builder_.getInt64(-lanes));
        emit_loop(builder_.getInt64(0), whole, lanes, false, [&](Value* i) { emit_chunk(loop, i, 0, lanes); });
    }
    close_accumulators();
    if (!extent) {
        emit_loop(whole, count, 1, false, [&](Value* i) {
            with_binding(loop.var, {i, 0, false, depth_, last_of(loop.extent)}, [&] { emit(loop.body); });
        });
        return;
    }
    for (int part = lanes; done < *extent; part /= 2)
        if (done + part <= *extent) {
            emit_chunk(loop, nullptr, done, part);
            done += part;
        }
}

void Emitter::emit_chunk(const For& loop, Value* at, int64_t offset, int lanes) {
    lanes_ = lanes;
    lane_var_ = loop.var.node().name;
    with_binding(loop.var, {at, offset, lanes > 1, depth_, last_of(loop.extent, lanes)}, [&] { emit(loop.body); });
    lanes_ = 1;
    lane_var_.clear();
}

// The stores in a loop that combine all lanes into an element that is the same all along.
void Emitter::open_accumulators(const For& loop, int lanes) {
    accumulators_.clear();
    if (!options_.fast_math) return;
    std::vector<std::string> inside{loop.var.node().name};
    std::vector<int> allocated;
    visit(loop.body, [&](const Stmt& s) {
        if (const For* inner = s->as<For>()) inside.push_back(inner->var.node().name);
        if (const Alloc* a = s->as<Alloc>()) allocated.push_back(a->buffer);
    });
    auto look = [&](const Stmt& s, auto& self) -> void {
        if (!s) return;
        if (const Seq* all = s->as<Seq>())
            for (const Stmt& each : all->stmts) self(each, self);
        if (const For* inner = s->as<For>()) self(inner->body, self);
        if (const Alloc* a = s->as<Alloc>()) self(a->body, self);
        const Store* st = s->as<Store>();
        if (!st || !st->combine) return;
        if (std::find(allocated.begin(), allocated.end(), st->to.buffer) != allocated.end()) return;
        for (const Expr& index : st->to.indices) {
            if (index.node().reads) return;
            for (const std::string& var : inside)
                if (mentions(index, var)) return;
        }
        const DType dtype = kernel_.buffers[st->to.buffer].dtype;
        auto* type = llvm::FixedVectorType::get(scalar_type(dtype), lanes);
        Value* memory = stack_memory(builder_, type, "lanes");
        builder_.CreateStore(builder_.CreateVectorSplat(lanes, identity(*st->combine, dtype)), memory);
        accumulators_.push_back({st, memory});
    };
    look(loop.body, look);  // not into branches: the element may be out of bounds where they are not taken
}

void Emitter::close_accumulators() {
    const std::vector<Accumulator> closing = std::exchange(accumulators_, {});
    for (const Accumulator& a : closing) {
        FreshMemo memo(*this);
        const Slot& slot = slots_[a.store->to.buffer];
        Value* v = builder_.CreateLoad(llvm::cast<llvm::AllocaInst>(a.memory)->getAllocatedType(), a.memory);
        Linear at = offset_of(slot, a.store->to.indices);
        Value* old = from_memory(load_from(slot, at, true), slot.dtype);
        store_lanes(slot, at, to_memory(reduce_lanes(*a.store->combine, slot.dtype, v, old), slot.dtype));
    }
}

Value* Emitter::reduce_lanes(ReduceOp op, DType dtype, Value* v, Value* start) {
    if (op == ReduceOp::Sum && is_float(dtype)) {
        llvm::IRBuilder<>::FastMathFlagGuard guard(builder_);
        llvm::FastMathFlags flags;
        if (options_.fast_math) flags.setAllowReassoc();
        builder_.setFastMathFlags(flags);
        return builder_.CreateFAddReduce(start, v);
    }
    const ExprKind kinds[] = {ExprKind::Add, ExprKind::Mul, ExprKind::Min, ExprKind::Max};
    const ExprKind kind = kinds[static_cast<int>(op)];
    const int lanes = std::exchange(lanes_, 1);
    if (op == ReduceOp::Prod && is_float(dtype) && !options_.fast_math) {
        for (int i = 0; i < static_cast<int>(llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements()); ++i)
            start = binary(kind, dtype, start, builder_.CreateExtractElement(v, i));
    } else {
        int width = static_cast<int>(llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements());
        for (; width > 1; width /= 2) {
            std::vector<int> low, high;
            for (int i = 0; i < width / 2; ++i) low.push_back(i), high.push_back(i + width / 2);
            v = binary(kind, dtype, builder_.CreateShuffleVector(v, low), builder_.CreateShuffleVector(v, high));
        }
        start = binary(kind, dtype, start, builder_.CreateExtractElement(v, uint64_t{0}));
    }
    lanes_ = lanes;
    return start;
}

}  // namespace tessera::codegen
