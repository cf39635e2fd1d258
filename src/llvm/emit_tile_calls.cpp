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

// A GPU prints by itself; where a condition does not hold, it says so and stops.
void Emitter::emit_printed(const Call& call) {
    const int64_t number = *call.args[0].as_int();
    const Report report = report_of(number);
    const size_t places = 3 + (report.asserts ? 0 : report.sizes.size());
    const auto held = [&](const Expr& e) {
        Value* v = emit(e);
        if (is_float(e.dtype())) return builder_.CreateBitCast(cast(v, e.dtype(), DType::f64), i64());
        return cast(v, e.dtype(), is_signed_int(e.dtype()) ? DType::i64 : DType::u64);
    };
    auto* type = llvm::FunctionType::get(builder_.getInt32Ty(), {builder_.getPtrTy(), builder_.getPtrTy()}, false);
    const size_t lines = std::max<size_t>(1, report.types.size());
    for (size_t line = 0; line < lines; ++line) {
        Value* values = stack_memory(builder_, llvm::ArrayType::get(i64(), places + 1), "said");
        for (size_t k = 0; k < places + (report.types.empty() ? 0 : 1); ++k) {
            Value* v = held(call.args[1 + (k < places ? k : places + line)]);
            if (!status_.ok()) return;
            const int bits = k < places ? 64 : dtype_bits(report.types[line]);
            if (k == places && report.hex && bits < 64)
                v = builder_.CreateAnd(v, builder_.getInt64((uint64_t{1} << bits) - 1));
            builder_.CreateStore(v, builder_.CreateConstInBoundsGEP1_64(i64(), values, k));
        }
        builder_.CreateCall(module_.getOrInsertFunction("vprintf", type),
                            {builder_.CreateGlobalString(printf_format(number, line)), values});
    }
    if (report.asserts) assembly("trap;", "", {});
}

void Emitter::emit_report(const Call& call) {
    if (has_blocks()) return emit_printed(call);
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
