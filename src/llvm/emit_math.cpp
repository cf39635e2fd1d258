#include <llvm/IR/Intrinsics.h>

#include "base/check.h"
#include "llvm/double_math.h"
#include "llvm/emitter.h"
#include "llvm/vector_math.h"

namespace tessera::codegen {
namespace {

const char* library_name(Fn fn) {
    switch (fn) {
        case Fn::Exp: return "exp";
        case Fn::Log: return "log";
        case Fn::Log1p: return "log1p";
        case Fn::Expm1: return "expm1";
        case Fn::Sin: return "sin";
        case Fn::Cos: return "cos";
        case Fn::Tan: return "tan";
        case Fn::Asin: return "asin";
        case Fn::Acos: return "acos";
        case Fn::Atan: return "atan";
        case Fn::Sinh: return "sinh";
        case Fn::Cosh: return "cosh";
        case Fn::Tanh: return "tanh";
        case Fn::Asinh: return "asinh";
        case Fn::Acosh: return "acosh";
        case Fn::Atanh: return "atanh";
        case Fn::Erf: return "erf";
        case Fn::Atan2: return "atan2";
        default: return nullptr;
    }
}

}  // namespace

Value* Emitter::math(Fn fn, DType dtype, Value* a, Value* b) {
    namespace in = llvm::Intrinsic;
    switch (fn) {
        case Fn::Abs: return builder_.CreateUnaryIntrinsic(in::fabs, a);
        case Fn::Sign: {
            Value* one = builder_.CreateCopySign(of(a, 1), a);
            Value* moved = builder_.CreateFCmpONE(a, of(a, 0));  // false of NaN
            Value* still = builder_.CreateSelect(builder_.CreateFCmpUNO(a, a), a, of(a, 0));
            return builder_.CreateSelect(moved, one, still);
        }
        case Fn::Floor: return builder_.CreateUnaryIntrinsic(in::floor, a);
        case Fn::Ceil: return builder_.CreateUnaryIntrinsic(in::ceil, a);
        case Fn::Round: return builder_.CreateUnaryIntrinsic(in::roundeven, a);
        case Fn::Trunc: return builder_.CreateUnaryIntrinsic(in::trunc, a);
        case Fn::Sqrt: return builder_.CreateUnaryIntrinsic(in::sqrt, a);
        case Fn::IsNan: return builder_.CreateFCmpUNO(a, a);
        case Fn::IsInf:
            return builder_.CreateFCmpOEQ(builder_.CreateUnaryIntrinsic(in::fabs, a),
                                          llvm::ConstantFP::getInfinity(a->getType()));
        default: break;
    }
    if (dtype == DType::f64) return library_call(library_name(fn), dtype, a, b);
    if (fn == Fn::Exp && options_.fast_math)
        if (Value* quick = quick_exp(a)) return quick;
    VectorMath code(builder_, target_);
    if (VectorMath::is_periodic(fn)) return angle(fn, dtype, a);
    Value* out = code.call(fn, a);
    return out ? out : library_call(library_name(fn), dtype, a, b);
}

// Straight code, but for angles too large for it.
Value* Emitter::angle(Fn fn, DType dtype, Value* a) {
    Value* magnitude = builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
    Value* large = builder_.CreateAnd(builder_.CreateFCmpOGT(magnitude, of(a, VectorMath::kLargestAngle)),
                                      builder_.CreateFCmpOLT(magnitude, llvm::ConstantFP::getInfinity(a->getType())));
    if (large->getType()->isVectorTy()) large = builder_.CreateOrReduce(large);
    llvm::LLVMContext& c = module_.getContext();
    auto* here = llvm::BasicBlock::Create(c, "angle", function_);
    auto* library = llvm::BasicBlock::Create(c, "large_angle", function_);
    auto* after = llvm::BasicBlock::Create(c, "after", function_);
    builder_.CreateCondBr(large, library, here);
    builder_.SetInsertPoint(here);
    Value* fast = VectorMath(builder_, target_).periodic(fn, a);
    builder_.CreateBr(after);
    builder_.SetInsertPoint(library);
    Value* slow = library_call(library_name(fn), dtype, a, nullptr);
    builder_.CreateBr(after);
    builder_.SetInsertPoint(after);
    auto* phi = builder_.CreatePHI(a->getType(), 2);
    phi->addIncoming(fast, here);
    phi->addIncoming(slow, library);
    return phi;
}

Value* Emitter::library_call(const char* name, DType dtype, Value* a, Value* b) {
    CHECK(name, "a function without a name");
    if (has_blocks()) return without_library(name, dtype, a, b);
    llvm::Type* type = scalar_type(dtype);
    const std::string symbol = dtype == DType::f64 ? std::string(name) : std::string(name) + "f";
    std::vector<llvm::Type*> types(b ? 2 : 1, type);
    llvm::FunctionCallee callee = module_.getOrInsertFunction(symbol, llvm::FunctionType::get(type, types, false));
    if (auto* f = llvm::dyn_cast<llvm::Function>(callee.getCallee())) {
        f->setDoesNotThrow();
        f->setDoesNotAccessMemory();
        f->setWillReturn();
    }
    auto one = [&](Value* x, Value* y) -> Value* {
        return y ? builder_.CreateCall(callee, {x, y}) : builder_.CreateCall(callee, {x});
    };
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
    if (!vector) return one(a, b);
    Value* out = llvm::PoisonValue::get(vector);
    for (unsigned i = 0; i < vector->getNumElements(); ++i) {
        Value* v = one(builder_.CreateExtractElement(a, i), b ? builder_.CreateExtractElement(b, i) : nullptr);
        out = builder_.CreateInsertElement(out, v, i);
    }
    return out;
}

// In doubles, where there is no library.
Value* Emitter::without_library(const std::string& name, DType dtype, Value* a, Value* b) {
    llvm::Type *wide = like(a, builder_.getDoubleTy()), *own = a->getType();
    if (dtype != DType::f64) a = builder_.CreateFPExt(a, wide);
    if (b && dtype != DType::f64) b = builder_.CreateFPExt(b, wide);
    Value* out = DoubleMath(builder_).call(name, a, b);
    return dtype == DType::f64 ? out : builder_.CreateFPTrunc(out, own);
}

// 2^(x log2 e), what the product lost given back.
Value* Emitter::quick_exp(Value* x) {
    constexpr double kHigh = 1.4426950216293335, kLow = 1.9259629911e-8, kLn2 = 0.6931471805599453;
    Value* exponent = builder_.CreateFMul(x, of(x, kHigh));
    Value* grown = target_.code->quick_exp2(builder_, exponent);
    if (!grown) return nullptr;
    auto fma = [&](Value* a, Value* b, Value* c) {
        return builder_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
    };
    Value* lost = fma(x, of(x, kLow), fma(x, of(x, kHigh), builder_.CreateFNeg(exponent)));
    Value* inside = builder_.CreateFCmpOLT(builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, exponent), of(x, 128));
    return builder_.CreateSelect(inside, fma(builder_.CreateFMul(grown, lost), of(x, kLn2), grown), grown);
}

bool Emitter::may_divide_quickly(const Expr& e) const {
    const bool narrow = e.dtype() == DType::f16 || e.dtype() == DType::bf16;
    return narrow && e.arg(0).dtype() == DType::f32 && options_.fast_math && has_blocks();
}

// What is cast. Quotients in what is rounded to 16 bits may be wrong by two units in the last place of f32: a division
// that rounds as IEEE 754 says has branches, across which the assembler moves no loads.
Value* Emitter::emit_for_cast(const Expr& e) {
    const bool before = std::exchange(rounds_to_16_bits_, rounds_to_16_bits_ || may_divide_quickly(e));
    Value* made = emit(e.arg(0));
    rounds_to_16_bits_ = before;
    return made;
}

// exp or a quotient of f32, rounded to 16 bits: more digits than those need not be right.
Value* Emitter::quick_narrow(const Expr& e) {
    const Expr& inner = e.arg(0);
    if (!may_divide_quickly(e)) return nullptr;
    Value* made = nullptr;
    if (inner.is(ExprKind::Call) && inner.node().fn == Fn::Exp) {
        Value* x = emit(inner.arg(0));
        made = target_.code->quick_exp2(builder_, builder_.CreateFMul(x, of(x, 1.44269504088896341)));
    } else if (inner.is(ExprKind::Div)) {
        Value *a = emit(inner.arg(0)), *b = emit(inner.arg(1));
        match(a, b);
        made = target_.code->quick_divide(builder_, a, b);
    }
    return made ? round_to(made, e.dtype()) : nullptr;
}

Value* Emitter::remainder(Value* a, Value* b) {
    if (!has_blocks()) return builder_.CreateFRem(a, b);
    return without_library("fmod", a->getType()->getScalarType()->isDoubleTy() ? DType::f64 : DType::f32, a, b);
}

Value* Emitter::power(DType dtype, Value* a, Value* b) {
    auto* base = llvm::dyn_cast<llvm::Constant>(a);
    if (base && base->getType()->isVectorTy()) base = base->getSplatValue();
    if (auto* f = base ? llvm::dyn_cast<llvm::ConstantFP>(base) : nullptr; f && options_.fast_math)
        if (dtype != DType::f64 && f->isExactlyValue(2.0))
            if (Value* quick = target_.code->quick_exp2(builder_, b)) return quick;
    auto* c = llvm::dyn_cast<llvm::Constant>(b);
    if (c && c->getType()->isVectorTy()) c = c->getSplatValue();
    if (auto* f = c ? llvm::dyn_cast<llvm::ConstantFP>(c) : nullptr) {
        const double e =
            f->getType()->isDoubleTy() ? f->getValueAPF().convertToDouble() : f->getValueAPF().convertToFloat();
        if (e == 0) return of(a, 1);
        if (e == 1) return a;
        if (e == 2) return builder_.CreateFMul(a, a);
        if (e == 3) return builder_.CreateFMul(builder_.CreateFMul(a, a), a);
        if (e == -1) return builder_.CreateFDiv(of(a, 1), a);
        if (e == 0.5 || e == -0.5) {  // +inf of -inf, and +0 of -0
            Value* inf = llvm::ConstantFP::getInfinity(a->getType());
            Value* root = builder_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, builder_.CreateFAdd(a, of(a, 0)));
            root = builder_.CreateSelect(builder_.CreateFCmpOEQ(a, builder_.CreateFNeg(inf)), inf, root);
            return e < 0 ? builder_.CreateFDiv(of(a, 1), root) : root;
        }
    }
    return library_call("pow", dtype, a, b);
}

}  // namespace tessera::codegen
