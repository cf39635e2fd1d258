// What kernels of tile programs call (kernel/ir/tile_calls.h).
#include "kernel/ir/tile_calls.h"

#include "base/check.h"
#include "llvm/emitter.h"

namespace tessera::codegen {

void Emitter::emit_tile_language_call(const Call& call) {
    if (call.name == kBits) return emit_bits(call);
    if (call.name == kReport) return emit_report(call);
    CHECK(!open_loops_.empty() && open_loops_.back().after, "kernel {}: a loop is left, and there is none",
          kernel_.name);
    Value* ends = emit(call.args[0]);
    if (!status_.ok()) return;
    auto* on = llvm::BasicBlock::Create(module_.getContext(), "on", function_);
    builder_.CreateCondBr(ends, open_loops_.back().after, on);
    builder_.SetInsertPoint(on);
}

void Emitter::emit_bits(const Call& call) {
    const Access &to = call.writes[0], &from = call.reads[0];
    const Slot &source = slots_[from.buffer], &target = slots_[to.buffer];
    Value* at = address(source, offset_of(source, from.indices));
    if (!status_.ok()) return;
    Value* loaded = builder_.CreateAlignedLoad(memory_type(source.dtype), at, llvm::Align(dtype_bytes(source.dtype)));
    store_lanes(target, offset_of(target, to.indices), builder_.CreateBitCast(loaded, memory_type(target.dtype)));
    forget_loads(to.buffer);
}

void Emitter::emit_report(const Call& call) {
    Value* values = stack_memory(builder_, llvm::ArrayType::get(i64(), call.args.size()), "said");
    for (size_t k = 1; k < call.args.size(); ++k) {
        const DType dtype = call.args[k].dtype();
        Value* v = emit(call.args[k]);
        if (!status_.ok()) return;
        if (is_float(dtype))
            v = builder_.CreateBitCast(cast(v, dtype, DType::f64), i64());
        else
            v = cast(v, dtype, is_signed_int(dtype) ? DType::i64 : DType::u64);
        builder_.CreateStore(v, builder_.CreateConstInBoundsGEP1_64(i64(), values, k - 1));
    }
    auto* type = llvm::FunctionType::get(builder_.getVoidTy(), {i64(), builder_.getPtrTy()}, false);
    builder_.CreateCall(module_.getOrInsertFunction("tessera_report", type), {emit(call.args[0]), values});
}

}  // namespace tessera::codegen
