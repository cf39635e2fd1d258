#include <llvm/IR/Intrinsics.h>

#include "base/check.h"
#include "kernel/ir/atomics.h"
#include "kernel/ir/tile_calls.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kMostCopies = 4096;

}  // namespace

void Emitter::emit(const Stmt& s) {
    if (!s || !status_.ok()) return;
    if (const Seq* all = s->as<Seq>()) {
        for (const Stmt& each : all->stmts) emit(each);
        return;
    }
    if (const Alloc* a = s->as<Alloc>()) return emit_alloc(*a, [&] { emit(a->body); });
    if (const For* loop = s->as<For>()) return emit_for(*loop);
    // Each statement sees memory anew.
    FreshMemo memo(*this);
    if (const Store* st = s->as<Store>()) emit_store(*st);
    if (const If* branch = s->as<If>()) emit_if(*branch);
    if (const Call* call = s->as<Call>()) emit_call(*call);
}

void Emitter::emit_for(const For& loop) {
    const auto extent = loop.extent.as_int();
    if (extent && *extent <= 0) return;
    if (extent == 1) return emit_copies(loop, 1);
    if (loop.kind == LoopKind::Vector && lanes_ == 1 && fits_lanes(loop)) return emit_vector(loop);
    if (emit_transposed(loop) || emit_merged(loop)) return;
    // Register buffers stay in registers only where their indices are constant.
    const bool expand = loop.kind == LoopKind::Unrolled || (loop.kind == LoopKind::Vector && touches_registers(loop));
    if (expand && extent && *extent <= kMostCopies) return emit_copies(loop, *extent);

    Value* count = emit_alone(loop.extent);
    if (!status_.ok()) return;
    CHECK(!count->getType()->isVectorTy(), "an extent that differs between lanes: {}", to_string(loop.extent));
    const bool runs = bounds(loop.extent).low.value_or(0) > 0;
    auto at_note = loop.notes.find("unroll");
    const int64_t copies = at_note == loop.notes.end() ? 1 : std::min<int64_t>(at_note->second, 64);
    auto body = [&](Value* i, int64_t offset, int64_t step = 1) {
        with_binding(loop.var, {i, offset, false, depth_, last_of(loop.extent, step)}, [&] { emit(loop.body); });
    };
    if (copies <= 1) return emit_loop(builder_.getInt64(0), count, 1, runs, [&](Value* i) { body(i, 0); });

    // Several copies at a time, then the rest.
    if (extent) {
        const int64_t whole = *extent / copies * copies;
        if (whole == copies)
            for (int64_t j = 0; j < copies; ++j) body(nullptr, j);
        else if (whole)
            emit_loop(builder_.getInt64(0), builder_.getInt64(whole), copies, true, [&](Value* i) {
                for (int64_t j = 0; j < copies; ++j) body(i, j, copies);
            });
        for (int64_t i = whole; i < *extent; ++i) body(nullptr, i);
        return;
    }
    Value* whole =
        builder_.CreateSub(count, builder_.CreateURem(count, builder_.getInt64(copies)), "whole", true, true);
    if (!runs)
        whole = builder_.CreateSelect(builder_.CreateICmpSGT(count, builder_.getInt64(0)), whole, builder_.getInt64(0));
    emit_loop(builder_.getInt64(0), whole, copies, false, [&](Value* i) {
        for (int64_t j = 0; j < copies; ++j) body(i, j, copies);
    });
    emit_loop(whole, count, 1, false, [&](Value* i) { body(i, 0); });
}

std::optional<int64_t> Emitter::last_of(const Expr& extent, int64_t step) {
    const auto high = bounds(extent).high;
    return high ? std::optional(*high - step) : std::nullopt;
}

Value* Emitter::emit_alone(const Expr& e) {
    FreshMemo memo(*this);
    return emit(e);
}

void Emitter::emit_copies(const For& loop, int64_t count) {
    for (int64_t i = 0; i < count; ++i) with_binding(loop.var, {nullptr, i, false, 0}, [&] { emit(loop.body); });
}

void Emitter::emit_loop(Value* begin, Value* end, int64_t step, bool runs, const std::function<void(Value*)>& body) {
    llvm::LLVMContext& c = module_.getContext();
    auto* before = builder_.GetInsertBlock();
    auto* block = llvm::BasicBlock::Create(c, "loop", function_);
    auto* after = llvm::BasicBlock::Create(c, "after", function_);
    if (runs)
        builder_.CreateBr(block);
    else
        builder_.CreateCondBr(builder_.CreateICmpSLT(begin, end), block, after);
    builder_.SetInsertPoint(block);
    auto* i = builder_.CreatePHI(i64(), 2, "i");
    i->addIncoming(begin, before);
    loads_.clear();
    if (!open_loops_.empty()) open_loops_.back().innermost = false;
    open_loops_.push_back({before, block, i, step, {}});
    open_loops_.back().after = after;
    ++depth_;
    body(i);
    --depth_;
    loads_.clear();
    close_loop(open_loops_.back(), begin, builder_.GetInsertBlock());
    open_loops_.pop_back();
    Value* next = builder_.CreateAdd(i, builder_.getInt64(step), "next", true, true);
    i->addIncoming(next, builder_.GetInsertBlock());
    builder_.CreateCondBr(builder_.CreateICmpSLT(next, end), block, after);
    builder_.SetInsertPoint(after);
}

void Emitter::with_binding(const Expr& var, Binding binding, const std::function<void()>& body) {
    const std::string& name = var.node().name;
    auto [it, added] = bindings_.try_emplace(name, binding);
    Binding old = it->second;
    it->second = binding;
    body();
    if (added)
        bindings_.erase(name);
    else
        bindings_[name] = old;
}

void Emitter::with_mask(Value* mask, const std::function<void()>& body) {
    Value* old = mask_;
    mask_ = old ? builder_.CreateAnd(old, mask) : mask;
    body();
    mask_ = old;
}

void Emitter::emit_if(const If& branch) {
    Value* condition = emit(branch.condition);
    if (!status_.ok()) return;
    if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition))
        return emit(known->isOne() ? branch.then : branch.otherwise);
    if (condition->getType()->isVectorTy()) {
        with_mask(condition, [&] { emit(branch.then); });
        if (branch.otherwise) with_mask(builder_.CreateNot(condition), [&] { emit(branch.otherwise); });
        return;
    }
    llvm::LLVMContext& c = module_.getContext();
    auto* then = llvm::BasicBlock::Create(c, "then", function_);
    auto* otherwise = branch.otherwise ? llvm::BasicBlock::Create(c, "else", function_) : nullptr;
    auto* after = llvm::BasicBlock::Create(c, "after", function_);
    builder_.CreateCondBr(condition, then, otherwise ? otherwise : after);
    const Loads before = loads_;
    builder_.SetInsertPoint(then);
    emit(branch.then);
    builder_.CreateBr(after);
    if (otherwise) {
        loads_ = before;
        builder_.SetInsertPoint(otherwise);
        emit(branch.otherwise);
        builder_.CreateBr(after);
    }
    loads_.clear();
    builder_.SetInsertPoint(after);
}

void Emitter::emit_alloc(const Alloc& a, const std::function<void()>& body) {
    Slot& slot = slots_[a.buffer];
    const Slot old = slot;
    if (has_blocks() && kernel_.buffers[a.buffer].scope == Scope::Shared) {
        slot.base = is_threads_own(kernel_, a) ? threads_memory(a.buffer) : shared_memory(a.buffer);
        if (!slot.base) return;
    } else if (auto it = plan_->in_scratch.find(a.buffer); it != plan_->in_scratch.end()) {
        Value* offset = emit_alone(it->second);
        slot.base = builder_.CreateInBoundsGEP(builder_.getInt8Ty(), scratch_, offset, kernel_.buffers[a.buffer].name);
    } else {
        Expr count = 1;
        for (size_t d = 0; d < slot.shape.size(); ++d) count = count + (slot.shape[d] - 1) * slot.strides[d];
        slot.per_lane = lanes_ > 1 ? lanes_ : 0;
        slot.own = *count.as_int() * lanes_;
        auto* type = llvm::ArrayType::get(memory_type(slot.dtype), slot.own);
        slot.base = stack_memory(builder_, type, kernel_.buffers[a.buffer].name.c_str());
    }
    forget_loads(a.buffer);
    body();
    forget_loads(a.buffer);
    slot = old;
}

void Emitter::emit_call(const Call& call) {
    if (const Intrinsic* known = find_intrinsic(call.name)) return emit_intrinsic(call, *known);
    if (is_atomic(call)) return emit_atomic(call);
    if (is_tile_language_call(call)) return emit_tile_language_call(call);
    if (has_blocks() && call.name == "prefetch") return;
    if (has_blocks() && call.name == "barrier") return meet();
    if (call.name != "prefetch" || (call.reads.empty() && call.writes.empty()))
        return fail(Error(Code::E0604, "kernel {}: there is no intrinsic {} on a processor", kernel_.name, call.name));
    const int64_t nearness = call.args.empty() ? 3 : call.args[0].as_int().value_or(3);  // 3: the first cache
    const auto fetch = [&](const Access& a, bool to_write) {
        const Slot& slot = slots_[a.buffer];
        Value* at = address(slot, offset_of(slot, a.indices));
        const auto one = [&] {
            builder_.CreateIntrinsic(
                llvm::Intrinsic::prefetch, {builder_.getPtrTy()},
                {at, builder_.getInt32(to_write ? 1 : 0), builder_.getInt32(unsigned(nearness)), builder_.getInt32(1)});
        };
        Value* past_the_caches = to_write ? streams_to(a.buffer) : nullptr;
        if (past_the_caches)
            emit_where(builder_.CreateNot(past_the_caches), one);
        else
            one();
    };
    for (const Access& a : call.reads) fetch(a, false);
    for (const Access& a : call.writes) fetch(a, true);
}

Tile Emitter::tile_of(const Access& first, std::vector<int64_t> extents, std::vector<Value*> strides) {
    const Slot& slot = slots_[first.buffer];
    CHECK(slot.base, "kernel {}: {} is used outside its Alloc", kernel_.name, kernel_.buffers[first.buffer].name);
    Value* at = address(slot, offset_of(slot, first.indices));
    const auto align = static_cast<uint64_t>(dtype_bytes(slot.dtype));
    return {
        at,          memory_type(slot.dtype), llvm::Align(align), std::move(extents), std::move(strides), slot.scope,
        slot.noalias};
}

// As the instruction where the target has it, otherwise as the nest it stands for.
void Emitter::emit_intrinsic(const Call& call, const Intrinsic& known) {
    const IntrinsicCode* code = target_.machine.has(known.needs) ? find_intrinsic_code(known.name) : nullptr;
    if (!code) return emit(expand_intrinsic(kernel_, call));
    std::vector<ReduceAxis> axes = known.axes;
    axes.insert(axes.end(), known.reduce.begin(), known.reduce.end());
    // A tile has the axes that its element is at, in that order.
    auto tile = [&](const Access& first, const std::vector<Expr>& element, size_t operand) {
        std::vector<int64_t> extents;
        std::vector<Value*> strides;
        for (const Expr& index : element)
            for (size_t i = 0; i < axes.size(); ++i) {
                if (!axes[i].var.same(index)) continue;
                extents.push_back(*axes[i].extent.as_int());
                strides.push_back(emit(call.args[operand * axes.size() + i]));
            }
        return tile_of(first, std::move(extents), std::move(strides));
    };
    std::vector<Expr> out;
    for (const ReduceAxis& a : known.axes) out.push_back(a.var);
    std::vector<Tile> tiles(call.reads.size() + 1);
    tiles[0] = tile(call.writes[0], out, 0);
    visit(known.value, [&](const Expr& e) {
        if (!e.is(ExprKind::Load)) return;
        const auto operand = static_cast<size_t>(e.node().slot);
        tiles[operand + 1] = tile(call.reads[operand], e.args(), operand + 1);
    });
    TileCode on_tiles(builder_, std::move(tiles), options_.fast_math);
    code->emit(on_tiles);
    forget_loads(call.writes[0].buffer);
}

}  // namespace tessera::codegen
