#include <llvm/IR/Intrinsics.h>

#include "base/check.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

// The value of a constant that is the same in all lanes.
std::optional<int64_t> known(Value* v) {
    auto* c = llvm::dyn_cast<llvm::Constant>(v);
    if (c && c->getType()->isVectorTy()) c = c->getSplatValue();
    auto* i = c ? llvm::dyn_cast<llvm::ConstantInt>(c) : nullptr;
    if (!i || i->getBitWidth() > 64) return {};
    return i->getSExtValue();
}

}  // namespace

Value* Emitter::int_extreme(bool largest, DType dtype, Value* a, Value* b) {
    if (dtype == DType::boolean) return largest ? builder_.CreateOr(a, b) : builder_.CreateAnd(a, b);
    using namespace llvm::Intrinsic;
    const ID id = is_signed_int(dtype) ? (largest ? smax : smin) : (largest ? umax : umin);
    return builder_.CreateBinaryIntrinsic(id, a, b);
}

// Truncates; x / 0 is 0, and the one quotient that overflows wraps.
Value* Emitter::int_divide(DType dtype, Value* a, Value* b) {
    llvm::Type* type = a->getType();
    Value *zero = of_int(type, 0), *one = of_int(type, 1);
    const auto divisor = known(b);
    if (divisor == 0) return zero;
    if (!is_signed_int(dtype)) {
        if (divisor) return builder_.CreateUDiv(a, b);
        Value* none = builder_.CreateICmpEQ(b, zero);
        return builder_.CreateSelect(none, zero, builder_.CreateUDiv(a, builder_.CreateSelect(none, one, b)));
    }
    if (divisor == -1) return builder_.CreateNeg(a);
    if (divisor) return builder_.CreateSDiv(a, b);
    Value* none = builder_.CreateICmpEQ(b, zero);
    Value* minus = builder_.CreateICmpEQ(b, of_int(type, -1));
    Value* q = builder_.CreateSDiv(a, builder_.CreateSelect(builder_.CreateOr(none, minus), one, b));
    q = builder_.CreateSelect(minus, builder_.CreateNeg(a), q);
    return builder_.CreateSelect(none, zero, q);
}

Value* Emitter::int_remainder(DType dtype, Value* a, Value* b) {
    llvm::Type* type = a->getType();
    Value *zero = of_int(type, 0), *one = of_int(type, 1);
    const auto divisor = known(b);
    if (divisor == 0) return zero;
    if (!is_signed_int(dtype)) {
        if (divisor) return builder_.CreateURem(a, b);
        Value* none = builder_.CreateICmpEQ(b, zero);
        return builder_.CreateSelect(none, zero, builder_.CreateURem(a, builder_.CreateSelect(none, one, b)));
    }
    if (divisor == -1) return zero;
    if (divisor) return builder_.CreateSRem(a, b);
    Value* trivial = builder_.CreateOr(builder_.CreateICmpEQ(b, zero), builder_.CreateICmpEQ(b, of_int(type, -1)));
    return builder_.CreateSelect(trivial, zero, builder_.CreateSRem(a, builder_.CreateSelect(trivial, one, b)));
}

// `positive`: a >= 0 and b > 0.
Value* Emitter::floor_divide(Value* a, Value* b, bool positive) {
    if (positive) return builder_.CreateUDiv(a, b);
    Value* q = int_divide(DType::i64, a, b);
    Value* r = int_remainder(DType::i64, a, b);
    Value* zero = of_int(a->getType(), 0);
    Value* opposite = builder_.CreateICmpSLT(builder_.CreateXor(r, b), zero);
    Value* down = builder_.CreateAnd(builder_.CreateICmpNE(r, zero), opposite);
    return builder_.CreateSub(q, builder_.CreateZExt(down, a->getType()));
}

Value* Emitter::floor_remainder(DType dtype, Value* a, Value* b, bool positive) {
    if (positive) return builder_.CreateURem(a, b);
    Value* r = int_remainder(dtype, a, b);
    if (!is_signed_int(dtype)) return r;
    Value* zero = of_int(a->getType(), 0);
    Value* opposite = builder_.CreateICmpSLT(builder_.CreateXor(r, b), zero);
    Value* move = builder_.CreateAnd(builder_.CreateICmpNE(r, zero), opposite);
    return builder_.CreateSelect(move, builder_.CreateAdd(r, b), r);
}

Value* Emitter::shift(ExprKind kind, DType dtype, Value* a, Value* b) {
    llvm::Type* type = a->getType();
    Value *zero = of_int(type, 0), *width = of_int(type, dtype_bits(dtype));
    // A type of so few bits cannot hold its own width.
    if (dtype_bits(dtype) < 8) {
        llvm::Type* wide = like(a, builder_.getInt8Ty());
        const bool is_signed = is_signed_int(dtype);
        Value* x = is_signed ? builder_.CreateSExt(a, wide) : builder_.CreateZExt(a, wide);
        Value* y = is_signed ? builder_.CreateSExt(b, wide) : builder_.CreateZExt(b, wide);
        Value* over = builder_.CreateICmpUGE(y, of_int(wide, dtype_bits(dtype)));
        Value* by = builder_.CreateSelect(over, of_int(wide, 0), y);
        Value* v = kind == ExprKind::Shl ? builder_.CreateShl(x, by)
                   : is_signed           ? builder_.CreateAShr(x, by)
                                         : builder_.CreateLShr(x, by);
        return builder_.CreateSelect(over, zero, builder_.CreateTrunc(v, type));
    }
    Value* over = builder_.CreateICmpUGE(b, width);
    Value* by = builder_.CreateSelect(over, zero, b);
    Value* v = kind == ExprKind::Shl  ? builder_.CreateShl(a, by)
               : is_signed_int(dtype) ? builder_.CreateAShr(a, by)
                                      : builder_.CreateLShr(a, by);
    return builder_.CreateSelect(over, zero, v);
}

// By squaring, one bit of the exponent a step: the loop runs for all lanes until no exponent is left.
Value* Emitter::int_power(DType dtype, Value* a, Value* b) {
    llvm::Type* type = a->getType();
    Value *zero = of_int(type, 0), *one = of_int(type, 1);
    if (auto e = known(b); e && *e >= 0 && *e <= 4) {
        Value* out = one;
        for (int64_t i = 0; i < *e; ++i) out = i ? builder_.CreateMul(out, a) : a;
        return out;
    }
    llvm::LLVMContext& c = module_.getContext();
    auto* before = builder_.GetInsertBlock();
    auto* block = llvm::BasicBlock::Create(c, "power", function_);
    auto* after = llvm::BasicBlock::Create(c, "after", function_);
    builder_.CreateBr(block);
    builder_.SetInsertPoint(block);
    auto* result = builder_.CreatePHI(type, 2);
    auto* square = builder_.CreatePHI(type, 2);
    auto* left = builder_.CreatePHI(type, 2);
    result->addIncoming(one, before);
    square->addIncoming(a, before);
    left->addIncoming(b, before);
    Value* odd = builder_.CreateICmpNE(builder_.CreateAnd(left, one), zero);
    Value* next = builder_.CreateSelect(odd, builder_.CreateMul(result, square), result);
    Value* rest = builder_.CreateLShr(left, one);
    result->addIncoming(next, block);
    square->addIncoming(builder_.CreateMul(square, square), block);
    left->addIncoming(rest, block);
    Value* more = builder_.CreateICmpNE(rest, zero);
    if (more->getType()->isVectorTy()) more = builder_.CreateOrReduce(more);
    builder_.CreateCondBr(more, block, after);
    builder_.SetInsertPoint(after);
    if (!is_signed_int(dtype)) return next;
    // A negative exponent leaves 1 and -1, and 0 of anything else.
    Value* parity = builder_.CreateICmpNE(builder_.CreateAnd(b, one), zero);
    Value* of_minus = builder_.CreateSelect(parity, of_int(type, -1), one);
    Value* inverse = builder_.CreateSelect(builder_.CreateICmpEQ(a, of_int(type, -1)), of_minus, zero);
    inverse = builder_.CreateSelect(builder_.CreateICmpEQ(a, one), one, inverse);
    return builder_.CreateSelect(builder_.CreateICmpSLT(b, zero), inverse, next);
}

}  // namespace tessera::codegen
