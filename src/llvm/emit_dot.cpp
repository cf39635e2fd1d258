// Words of bytes: their products, and words that are read from bytes.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <array>

#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

constexpr int kBytesOfWord = 4;

// The loads of a word that is made of four bytes.
std::optional<std::array<Expr, kBytesOfWord>> loads_of_word(const Expr& e) {
    std::array<Expr, kBytesOfWord> loads;
    Expr rest = e;
    for (int i = kBytesOfWord - 1; i >= 0; --i) {
        Expr byte = rest;
        if (i > 0) {
            if (!rest.is(ExprKind::BitOr) || rest.args().size() != 2 || !rest.arg(1).is(ExprKind::Shl)) return {};
            const Expr& by = rest.arg(1).arg(1);
            if (!by.is(ExprKind::Const) || by.node().integer != 8 * i) return {};
            byte = rest.arg(1).arg(0);
            rest = Expr(rest.arg(0));
        }
        if (!byte.is(ExprKind::Cast) || byte.arg(0).dtype() != DType::u8) return {};
        byte = Expr(byte.arg(0));
        if (byte.is(ExprKind::Cast) && byte.arg(0).dtype() == DType::i8) byte = Expr(byte.arg(0));
        if (!byte.is(ExprKind::Load)) return {};
        loads[static_cast<size_t>(i)] = byte;
    }
    return loads;
}

// Whether one load's place is so many elements after the other's by their indices alone, whatever values they have.
bool follows(const Expr& load, const Expr& first, const Buffer& buffer, int64_t elements) {
    if (load.args().empty() || (!buffer.strides.empty() && !buffer.strides.back().is_int(1))) return false;
    for (size_t d = 0; d + 1 < load.args().size(); ++d)
        if (!load.arg(d).same(first.arg(d))) return false;
    return (load.args().back() - first.args().back()).is_int(elements);
}

}  // namespace

// Where a word of four bytes that lie side by side begins.
std::optional<Emitter::WordPlace> Emitter::place_of_word(const Expr& e) {
    if (e.dtype() != DType::i32 || !e.is(ExprKind::BitOr) || has_blocks()) return {};
    const auto loads = loads_of_word(e);
    if (!loads) return {};
    const Slot& slot = slots_[(*loads)[0].node().slot];
    if (!slot.base || slot.per_lane) return {};
    WordPlace place{&slot, offset_of(slot, (*loads)[0].args()), true};
    if (place.first.irregular) return {};
    for (int i = 0; i < kBytesOfWord; ++i) {
        const Expr& load = (*loads)[static_cast<size_t>(i)];
        if (load.node().slot != (*loads)[0].node().slot) return {};
        place.in_bounds &= in_bounds(slot, load.args());
        const Buffer& buffer = kernel_.buffers[static_cast<size_t>(load.node().slot)];
        if (follows(load, (*loads)[0], buffer, i)) continue;
        Linear gap = offset_of(slot, load.args());
        add_linear(gap, place.first, -1);
        if (!gap.is_constant() || gap.constant != i) return {};
    }
    return place;
}

// Four bytes that lie side by side are read at once, null where they do not.
Value* Emitter::emit_word(const Expr& e) {
    const auto place = place_of_word(e);
    if (!place) return nullptr;
    const Slot& slot = *place->slot;
    const bool masked = mask_ && !place->in_bounds;
    auto load = [&](llvm::Type* type, Value* from) {
        return tag(builder_.CreateAlignedLoad(type, from, llvm::Align(1)), slot.scope, slot.noalias);
    };
    llvm::Type* word = builder_.getInt32Ty();
    Value* from = address(slot, place->first);
    const int64_t step = place->first.lane;
    if (!step) return load(word, masked ? chosen_address(builder_.CreateOrReduce(mask_), from) : from);
    auto* vector = llvm::FixedVectorType::get(word, static_cast<unsigned>(lanes_));
    if (step == kBytesOfWord && !masked) return load(vector, from);
    if (step == kBytesOfWord && target_.machine.masked)
        return tag(builder_.CreateMaskedLoad(vector, from, llvm::Align(1), mask_, llvm::Constant::getNullValue(vector)),
                   slot.scope, slot.noalias);
    if (gathers(kBytesOfWord)) {
        Value* places = builder_.CreateGEP(builder_.getInt8Ty(), from, lane_steps(step));
        return tag(gather(vector, places, llvm::Align(1), masked), slot.scope, slot.noalias);
    }
    Value* out = llvm::PoisonValue::get(vector);
    for (int i = 0; i < lanes_; ++i) {
        Value* at = builder_.CreateGEP(builder_.getInt8Ty(), from, builder_.getInt64(i * step));
        if (masked) at = chosen_address(builder_.CreateExtractElement(mask_, static_cast<uint64_t>(i)), at);
        out = builder_.CreateInsertElement(out, load(word, at), static_cast<uint64_t>(i));
    }
    return out;
}

// Words where the condition, which is the same for all lanes, holds, and otherwise something that can be had without
// reading them.
Value* Emitter::guarded_word(Value* condition, const Expr& e, const Expr& otherwise) {
    const auto place = mask_ ? std::nullopt : place_of_word(e);
    if (!place || (place->first.lane != 0 && place->first.lane != kBytesOfWord)) return nullptr;
    llvm::Type* type = builder_.getInt32Ty();
    if (place->first.lane) type = llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes_));
    Value* instead = zeros(static_cast<int64_t>(module_.getDataLayout().getTypeStoreSize(type)));
    Value* from = builder_.CreateSelect(condition, address(*place->slot, place->first), instead);
    Value *v = builder_.CreateAlignedLoad(type, from, llvm::Align(1)), *other = emit(otherwise);
    match(v, other);
    return builder_.CreateSelect(condition, v, other);
}

// sum + the products of the bytes of a and b.
Value* Emitter::dot(Fn fn, Value* sum, Value* a, Value* b) {
    if (a->getType()->isVectorTy() || b->getType()->isVectorTy() || sum->getType()->isVectorTy())
        a = splat(a), b = splat(b), sum = splat(sum);
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(sum->getType());
    if (vector)
        if (Value* quick = dot_of_vectors(fn, sum, a, b, vector->getNumElements())) return quick;
    for (int i = 0; i < kBytesOfWord; ++i) {
        auto byte = [&](Value* word, bool is_signed) {
            Value* top = builder_.CreateShl(word, of_int(word->getType(), 8 * (kBytesOfWord - 1 - i)));
            Value* by = of_int(word->getType(), 8 * (kBytesOfWord - 1));
            return is_signed ? builder_.CreateAShr(top, by) : builder_.CreateLShr(top, by);
        };
        sum = builder_.CreateAdd(sum, builder_.CreateMul(byte(a, fn == Fn::DotI8), byte(b, true)));
    }
    return sum;
}

Value* Emitter::dot_of_vectors(Fn fn, Value* sum, Value* a, Value* b, unsigned lanes) {
    namespace in = llvm::Intrinsic;
    const Machine& m = target_.machine;
    unsigned widest = 0;
    llvm::Intrinsic::ID id = in::not_intrinsic;
    if (fn == Fn::DotI8 && m.has("dotprod")) widest = 4;
    if (fn == Fn::DotU8I8 && (m.has("avx512vnni") || m.has("avxvnni")))
        widest = static_cast<unsigned>(m.vector_bytes) / kBytesOfWord;
    if (!widest || lanes < 4) return nullptr;
    if (lanes > widest) {
        if (lanes % widest) return nullptr;
        std::vector<Value*> parts;
        for (unsigned at = 0; at < lanes; at += widest) {
            std::vector<int> taken;
            for (unsigned i = 0; i < widest; ++i) taken.push_back(static_cast<int>(at + i));
            auto part = [&](Value* v) { return builder_.CreateShuffleVector(v, taken); };
            parts.push_back(dot_of_vectors(fn, part(sum), part(a), part(b), widest));
        }
        return llvm::concatenateVectors(builder_, parts);
    }
    if (fn == Fn::DotI8) {
        // Any one word that is repeated comes second: there is a form for it.
        if (llvm::getSplatValue(a) && !llvm::getSplatValue(b)) std::swap(a, b);
        auto* bytes = llvm::FixedVectorType::get(builder_.getInt8Ty(), lanes * kBytesOfWord);
        Value *x = builder_.CreateBitCast(a, bytes), *y = builder_.CreateBitCast(b, bytes);
        return builder_.CreateIntrinsic(in::aarch64_neon_sdot, {sum->getType(), bytes}, {sum, x, y});
    }
    if (lanes == 16) id = in::x86_avx512_vpdpbusd_512;
    if (lanes == 8) id = in::x86_avx512_vpdpbusd_256;
    if (lanes == 4) id = in::x86_avx512_vpdpbusd_128;
    return id == in::not_intrinsic ? nullptr : builder_.CreateIntrinsic(id, {}, {sum, a, b});
}

}  // namespace tessera::codegen
