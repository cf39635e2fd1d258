// Updates of one element that no other update comes between.
#include "kernel/ir/atomics.h"
#include "llvm/emitter.h"

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

}  // namespace

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
    if (call.name == "atomic_compare") {
        // Bits are compared, so floats are exchanged as integers.
        llvm::Type* bits = builder_.getIntNTy(static_cast<unsigned>(dtype_bytes(slot.dtype)) * 8);
        for (Value*& v : args) v = builder_.CreateBitCast(v, bits);
        Value* pair = builder_.CreateAtomicCmpXchg(at, args[0], args[1], align, kOrder, kOrder);
        old = builder_.CreateBitCast(builder_.CreateExtractValue(pair, 0), memory_type(slot.dtype));
    } else {
        old = builder_.CreateAtomicRMW(operation(call.name, slot.dtype), at, args[0], align, kOrder);
    }
    forget_loads(to.buffer);
    if (call.writes.size() < 2) return;
    const Slot& kept = slots_[call.writes[0].buffer];
    store_lanes(kept, offset_of(kept, call.writes[0].indices), old);
    forget_loads(call.writes[0].buffer);
}

}  // namespace tessera::codegen
