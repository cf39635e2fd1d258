#include <llvm/IR/Intrinsics.h>

#include <cmath>

#include "base/check.h"
#include "base/numeric.h"
#include "llvm/emitter.h"

namespace tessera::codegen {

Value* Emitter::from_memory(Value* v, DType dtype) {
    if (dtype == DType::boolean) return builder_.CreateICmpNE(v, of_int(v->getType(), 0));
    if (dtype == DType::f16) return builder_.CreateFPExt(v, like(v, builder_.getFloatTy()));
    if (dtype == DType::bf16) {
        llvm::Type* wide = like(v, builder_.getInt32Ty());
        Value* bits = builder_.CreateShl(builder_.CreateZExt(v, wide), of_int(wide, 16));
        return builder_.CreateBitCast(bits, like(v, builder_.getFloatTy()));
    }
    if (is_int(dtype) && dtype_bits(dtype) < 8) return builder_.CreateTrunc(v, like(v, scalar_type(dtype)));
    return v;
}

namespace {

// The 16 bits that a bf16 was widened from, also where it was chosen over zero; null where it was computed.
Value* bits_behind(llvm::IRBuilderBase& b, Value* v, llvm::Type* narrow) {
    if (auto* c = llvm::dyn_cast<llvm::Constant>(v))
        return c->isNullValue() ? llvm::Constant::getNullValue(narrow) : nullptr;
    if (auto* chosen = llvm::dyn_cast<llvm::SelectInst>(v)) {
        Value *yes = bits_behind(b, chosen->getTrueValue(), narrow),
              *no = bits_behind(b, chosen->getFalseValue(), narrow);
        return yes && no ? b.CreateSelect(chosen->getCondition(), yes, no) : nullptr;
    }
    auto* cast = llvm::dyn_cast<llvm::BitCastInst>(v);
    auto* shifted = cast ? llvm::dyn_cast<llvm::BinaryOperator>(cast->getOperand(0)) : nullptr;
    if (!shifted || shifted->getOpcode() != llvm::Instruction::Shl) return nullptr;
    auto* widened = llvm::dyn_cast<llvm::ZExtInst>(shifted->getOperand(0));
    return widened && widened->getSrcTy() == narrow ? widened->getOperand(0) : nullptr;
}

}  // namespace

Value* Emitter::to_memory(Value* v, DType dtype) {
    if (dtype == DType::boolean) return builder_.CreateZExt(v, like(v, builder_.getInt8Ty()));
    if (dtype == DType::f16) return builder_.CreateFPTrunc(v, like(v, builder_.getHalfTy()));
    if (dtype == DType::bf16) {
        llvm::Type *wide = like(v, builder_.getInt32Ty()), *narrow = like(v, builder_.getInt16Ty());
        if (has_blocks())
            if (Value* copied = bits_behind(builder_, v, narrow)) return copied;
        if (Value* rounded = target_.code->round_to_bf16(builder_, v)) return rounded;
        Value* bits = builder_.CreateBitCast(v, wide);
        Value* upper = builder_.CreateLShr(bits, of_int(wide, 16));
        Value* odd = builder_.CreateAnd(upper, of_int(wide, 1));
        Value* rounded = builder_.CreateAdd(builder_.CreateAdd(bits, of_int(wide, 0x7fff)), odd);
        rounded = builder_.CreateLShr(rounded, of_int(wide, 16));
        Value* nan = builder_.CreateOr(upper, of_int(wide, 0x40));
        Value* picked = builder_.CreateSelect(builder_.CreateFCmpUNO(v, v), nan, rounded);
        return builder_.CreateTrunc(picked, narrow);
    }
    if (is_int(dtype) && dtype_bits(dtype) < 8) {
        llvm::Type* byte = like(v, builder_.getInt8Ty());
        return is_signed_int(dtype) ? builder_.CreateSExt(v, byte) : builder_.CreateZExt(v, byte);
    }
    return v;
}

Value* Emitter::round_to(Value* v, DType to) {
    if (to == DType::f16 || to == DType::bf16) return from_memory(to_memory(v, to), to);
    return v;
}

// Truncates, except that what is lost leaves the last bit set: rounding the result once more rounds v only once.
Value* Emitter::narrow_to_float(Value* v) {
    llvm::Type *single = like(v, builder_.getFloatTy()), *bits_type = like(v, builder_.getInt32Ty());
    Value* rounded = builder_.CreateFPTrunc(v, single);
    Value* back = builder_.CreateFPExt(rounded, v->getType());
    Value* bits = builder_.CreateBitCast(rounded, bits_type);
    auto magnitude = [&](Value* x) { return builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); };
    Value* above = builder_.CreateFCmpOGT(magnitude(back), magnitude(v));
    Value* toward_zero = builder_.CreateSub(bits, builder_.CreateZExt(above, bits_type));
    Value* odd = builder_.CreateOr(toward_zero, of_int(bits_type, 1));
    Value* inexact = builder_.CreateFCmpONE(back, v);
    return builder_.CreateBitCast(builder_.CreateSelect(inexact, odd, bits), single);
}

// An integer of so many bits: what is out of range stays at the end of it, NaN is 0.
Value* Emitter::to_int_range(Value* v, bool is_signed, unsigned bits) {
    llvm::Type* type = like(v, builder_.getIntNTy(bits));
    if (target_.code->converts_to_the_end() || !v->getType()->isVectorTy()) {
        const auto id = is_signed ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
        return builder_.CreateIntrinsic(id, {type, v->getType()}, {v});
    }
    // One by one, LLVM would say. Instead what is converted is never out of range.
    const int digits = v->getType()->getScalarType()->isDoubleTy() ? 53 : 24;
    const int power = static_cast<int>(bits) - (is_signed ? 1 : 0);
    const double beyond = std::ldexp(1.0, power), low = is_signed ? -beyond : 0;
    const double high = power <= digits ? beyond - 1 : beyond - std::ldexp(1.0, power - digits);
    Value* held = builder_.CreateSelect(builder_.CreateFCmpOGT(v, of(v, low)), v, of(v, low));
    held = builder_.CreateSelect(builder_.CreateFCmpOLT(held, of(held, high)), held, of(held, high));
    llvm::Type* wide = like(v, bits + (is_signed ? 0 : 1) <= 32 ? builder_.getInt32Ty() : i64());
    Value* whole = bits == 64 && !is_signed ? builder_.CreateFPToUI(held, wide) : builder_.CreateFPToSI(held, wide);
    whole = builder_.CreateTrunc(whole, type);
    if (power > digits) {
        const auto most = is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits);
        whole =
            builder_.CreateSelect(builder_.CreateFCmpOGE(v, of(v, beyond)), llvm::ConstantInt::get(type, most), whole);
    }
    if (!is_signed) return whole;  // NaN is not above the low end
    return builder_.CreateSelect(builder_.CreateFCmpUNO(v, v), llvm::Constant::getNullValue(type), whole);
}

Value* Emitter::cast(Value* v, DType from, DType to) {
    if (from == to) return v;
    llvm::Type* type = like(v, scalar_type(to));
    if (to == DType::boolean)
        return is_float(from) ? builder_.CreateFCmpUNE(v, of(v, 0)) : builder_.CreateICmpNE(v, of_int(v->getType(), 0));
    if (is_float(from) && is_float(to)) {
        if (to == DType::f64) return v->getType() == type ? v : builder_.CreateFPExt(v, type);
        if (from != DType::f64) return round_to(v, to);
        return to == DType::f32 ? builder_.CreateFPTrunc(v, type) : round_to(narrow_to_float(v), to);
    }
    if (is_float(from)) {
        // To 64 bits, where what is out of range stays at the end of it, then what fits of them.
        const bool wide_unsigned = to == DType::u64;
        Value* whole = to_int_range(v, true, 64);
        if (wide_unsigned) {
            Value* large = to_int_range(v, false, 64);
            whole = builder_.CreateSelect(builder_.CreateFCmpOGE(v, of(v, 9223372036854775808.0)), large, whole);
        }
        return builder_.CreateTrunc(whole, type);
    }
    const bool is_signed = is_signed_int(from);
    if (is_float(to)) {
        const bool twice = (to == DType::f16 || to == DType::bf16) && dtype_bits(from) > 24;
        llvm::Type* real = twice ? like(v, builder_.getDoubleTy()) : type;
        Value* made = is_signed ? builder_.CreateSIToFP(v, real) : builder_.CreateUIToFP(v, real);
        return twice ? round_to(narrow_to_float(made), to) : round_to(made, to);
    }
    return is_signed ? builder_.CreateSExtOrTrunc(v, type) : builder_.CreateZExtOrTrunc(v, type);
}

Value* Emitter::cast_saturate(Value* v, DType from, DType to) {
    if (to == DType::boolean) return cast(v, from, to);
    llvm::Type* type = like(v, scalar_type(to));
    if (is_float(from) && is_int(to)) {
        return to_int_range(v, is_signed_int(to), static_cast<unsigned>(dtype_bits(to)));
    }
    if (is_float(to)) {
        if (is_float(from) && from == DType::f64 && to != DType::f64)
            v = to == DType::f32 ? builder_.CreateFPTrunc(v, type) : narrow_to_float(v);
        else
            v = cast(v, from, to == DType::f64 ? to : DType::f32);
        const double limit = float_max(to);
        Value *high = of(v, limit), *low = of(v, -limit);
        v = builder_.CreateSelect(builder_.CreateFCmpOGT(v, high), high, v);
        v = builder_.CreateSelect(builder_.CreateFCmpOLT(v, low), low, v);
        return round_to(v, to);
    }
    // Between integers: clamp in the type that is wider, then narrow.
    const bool from_signed = is_signed_int(from), to_signed = is_signed_int(to);
    const int from_bits = dtype_bits(from), to_bits = dtype_bits(to);
    const int64_t low = from_signed && to_signed && from_bits > to_bits ? int_min(to) : 0;
    if (from_signed && (!to_signed || from_bits > to_bits))
        v = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, v, of_int(v->getType(), low));
    const bool over = from_signed == to_signed ? from_bits > to_bits
                      : from_signed            ? from_bits - 1 > to_bits
                                               : from_bits > to_bits - 1;
    if (over)
        v = builder_.CreateBinaryIntrinsic(from_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, v,
                                           of_int(v->getType(), int_max(to)));
    return cast(v, from, to);
}

}  // namespace tessera::codegen
