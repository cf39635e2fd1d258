// Updates of one element that no other update comes between.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "kernel/ir/atomics.h"
#include "llvm/emitter.h"
#include "llvm/vector_math.h"

namespace tessera::codegen {
namespace {

using Rmw = llvm::AtomicRMWInst;

Rmw::BinOp operation(std::string_view name, DType dtype) {
    const bool real = is_float(dtype), unsign = is_unsigned_int(dtype);
    if (name == "atomic_add") return real ? Rmw::FAdd : Rmw::Add;
    if (name == "atomic_min") return real ? Rmw::FMin : unsign ? Rmw::UMin : Rmw::Min;
    if (name == "atomic_max") return real ? Rmw::FMax : unsign ? Rmw::UMax : Rmw::Max;
    if (name == "atomic_and") return Rmw::And;
    if (name == "atomic_or") return Rmw::Or;
    if (name == "atomic_xor") return Rmw::Xor;
    return Rmw::Xchg;
}

// Whether there is an instruction for it: none multiplies, and those for the larger of two floats pass over NaN.
bool has_instruction(std::string_view name, DType dtype) {
    if (name == "atomic_exchange") return true;
    if (name == "atomic_mul" || dtype == DType::bf16) return false;
    return !is_float(dtype) || name == "atomic_add";
}

}  // namespace

// For what there is no instruction for: reads, computes and exchanges until nobody came between.
Value* Emitter::exchange_until(Value* at, DType dtype, const std::function<Value*(Value*)>& made) {
    constexpr auto kOrder = llvm::AtomicOrdering::SequentiallyConsistent;
    const llvm::Align align(dtype_bytes(dtype));
    llvm::Type* bits = builder_.getIntNTy(static_cast<unsigned>(dtype_bytes(dtype)) * 8);
    auto* before = builder_.GetInsertBlock();
    auto* again = llvm::BasicBlock::Create(module_.getContext(), "again", function_);
    auto* after = llvm::BasicBlock::Create(module_.getContext(), "after", function_);
    auto* first = builder_.CreateAlignedLoad(bits, at, align);
    first->setAtomic(llvm::AtomicOrdering::Monotonic);
    builder_.CreateBr(again);
    builder_.SetInsertPoint(again);
    auto* have = builder_.CreatePHI(bits, 2);
    have->addIncoming(first, before);
    Value* old = from_memory(builder_.CreateBitCast(have, memory_type(dtype)), dtype);
    Value* next = builder_.CreateBitCast(to_memory(made(old), dtype), bits);
    Value* pair = builder_.CreateAtomicCmpXchg(at, have, next, align, kOrder, kOrder);
    have->addIncoming(builder_.CreateExtractValue(pair, 0), builder_.GetInsertBlock());
    builder_.CreateCondBr(builder_.CreateExtractValue(pair, 1), after, again);
    builder_.SetInsertPoint(after);
    return builder_.CreateBitCast(have, memory_type(dtype));
}

void Emitter::emit_atomic(const Call& call) {
    constexpr auto kOrder = llvm::AtomicOrdering::SequentiallyConsistent;
    const Access& to = call.writes.back();
    const Slot& slot = slots_[to.buffer];
    const llvm::Align align(dtype_bytes(slot.dtype));
    std::vector<Value*> args;
    for (const Expr& e : call.args) args.push_back(to_memory(emit(e), slot.dtype));
    if (!status_.ok()) return;
    Value* at = address(slot, offset_of(slot, to.indices));
    Value* old = nullptr;
    const bool fences = has_blocks() && orders_memory(call);
    if (fences) builder_.CreateIntrinsic(llvm::Intrinsic::nvvm_membar_gl, {}, {});
    if (call.name == "atomic_compare") {
        // Bits are compared, so floats are exchanged as integers.
        llvm::Type* bits = builder_.getIntNTy(static_cast<unsigned>(dtype_bytes(slot.dtype)) * 8);
        for (Value*& v : args) v = builder_.CreateBitCast(v, bits);
        Value* pair = builder_.CreateAtomicCmpXchg(at, args[0], args[1], align, kOrder, kOrder);
        old = builder_.CreateBitCast(builder_.CreateExtractValue(pair, 0), memory_type(slot.dtype));
    } else if (!has_instruction(call.name, slot.dtype)) {
        Value* by = from_memory(args[0], slot.dtype);
        const bool real = is_float(slot.dtype);
        old = exchange_until(at, slot.dtype, [&](Value* have) -> Value* {
            if (call.name == "atomic_add") return builder_.CreateFAdd(have, by);
            if (call.name == "atomic_mul") return real ? builder_.CreateFMul(have, by) : builder_.CreateMul(have, by);
            return VectorMath(builder_, target_).extreme(call.name == "atomic_max", have, by);
        });
    } else {
        old = builder_.CreateAtomicRMW(operation(call.name, slot.dtype), at, args[0], align, kOrder);
    }
    if (fences) builder_.CreateIntrinsic(llvm::Intrinsic::nvvm_membar_gl, {}, {});
    forget_loads(to.buffer);
    if (call.writes.size() < 2) return;
    const Slot& kept = slots_[call.writes[0].buffer];
    store_lanes(kept, offset_of(kept, call.writes[0].indices), old);
    forget_loads(call.writes[0].buffer);
}

}  // namespace tessera::codegen
