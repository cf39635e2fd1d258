#include <llvm/IR/Intrinsics.h>

#include "llvm/vector_math.h"

namespace tessera::codegen {

// Reduced by multiples of pi / 2 in f64, of which the first part of pi / 2 has 33 bits.
VectorMath::Value* VectorMath::periodic(Fn fn, Value* x) {
    constexpr double kTwoOverPi = 0.63661977236758134308, kHigh = 1.57079632673412561417,
                     kLow = 6.07710050650619224932e-11;
    constexpr double kWideRounder = 6755399441055744.0;  // 1.5 * 2^52
    llvm::Type* wide_type = b_.getDoubleTy();
    llvm::Type* wide_ints = b_.getInt64Ty();
    if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType())) {
        wide_type = llvm::FixedVectorType::get(wide_type, vector->getNumElements());
        wide_ints = llvm::FixedVectorType::get(wide_ints, vector->getNumElements());
    }
    auto wide = [&](double c) { return llvm::ConstantFP::get(wide_type, c); };
    Value* w = b_.CreateFPExt(x, wide_type);
    Value* shifted = fma(w, wide(kTwoOverPi), wide(kWideRounder));
    Value* n = b_.CreateFSub(shifted, wide(kWideRounder));
    Value* rest = fma(n, wide(-kHigh), w);
    rest = fma(n, wide(-kLow), rest);
    Value* r = b_.CreateFPTrunc(rest, x->getType());
    Value* quadrant = b_.CreateTrunc(b_.CreateBitCast(shifted, wide_ints), ints(x));

    Value* z = b_.CreateFMul(r, r);
    Value* s =
        polynomial(z, {-0.16666666641526895, 0.00833332937412248, -0.00019839330996875118, 2.7182744709264887e-06});
    s = fma(b_.CreateFMul(z, r), s, r);
    Value* c =
        polynomial(z, {0.041666666619299735, -0.0013888883483716597, 2.4799455863855014e-05, -2.7205401032544895e-07});
    c = fma(b_.CreateFMul(z, z), c, fma(z, -0.5f, real(x, 1)));
    Value* odd = b_.CreateICmpNE(b_.CreateAnd(quadrant, integer(x, 1)), integer(x, 0));
    if (fn == Fn::Tan) {
        Value* t = b_.CreateFDiv(choose(odd, c, s), choose(odd, b_.CreateFNeg(s), c));
        return choose(b_.CreateFCmpOEQ(x, real(x, 0)), x, t);
    }
    if (fn == Fn::Cos) quadrant = b_.CreateAdd(quadrant, integer(x, 1));
    Value* picked = fn == Fn::Sin ? choose(odd, c, s) : choose(odd, s, c);
    Value* sign = b_.CreateShl(b_.CreateAnd(quadrant, integer(x, 2)), integer(x, 30));
    Value* out = from_bits(b_.CreateXor(bits(picked), sign), x);
    return fn == Fn::Sin ? choose(b_.CreateFCmpOEQ(x, real(x, 0)), x, out) : out;
}

VectorMath::Value* VectorMath::atan(Value* x) {
    Value *a = magnitude(x), *one = real(x, 1);
    Value* inverted = b_.CreateFCmpOGT(a, one);
    Value* y = choose(inverted, b_.CreateFDiv(one, a), a);
    Value* z = b_.CreateFMul(y, y);
    Value* p = polynomial(
        z, {-0.3333329908952638, 0.1999854829894198, -0.14264241847071113, 0.10952186654463061, -0.08403452849502681,
            0.05795763543917394, -0.031177886124878557, 0.010914626585681568, -0.0017936261973625447});
    Value* r = fma(b_.CreateFMul(z, y), p, y);
    r = choose(inverted, b_.CreateFSub(real(x, 1.57079637f), r), r);
    return with_sign(r, x);
}

// For |x| <= 1/2.
VectorMath::Value* VectorMath::asin_small(Value* x) {
    Value* z = b_.CreateFMul(x, x);
    Value* p = polynomial(z, {0.1666665997263471, 0.07500505385967453, 0.04451670767674931, 0.03180991746934876,
                              0.014429818661359489, 0.03752940876266226});
    return fma(b_.CreateFMul(z, x), p, x);
}

VectorMath::Value* VectorMath::asin(Value* x) {
    Value *a = magnitude(x), *large = b_.CreateFCmpOGT(a, real(x, 0.5f));
    Value* half = fma(a, -0.5f, real(x, 0.5f));
    Value* root = b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, half);
    Value* r = asin_small(choose(large, root, a));
    r = choose(large, fma(r, -2.0f, real(x, 1.57079637f)), r);
    return with_sign(r, x);
}

VectorMath::Value* VectorMath::acos(Value* x) {
    Value *a = magnitude(x), *large = b_.CreateFCmpOGT(a, real(x, 0.5f));
    Value* half = fma(a, -0.5f, real(x, 0.5f));
    Value* root = b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, half);
    Value* r = asin_small(choose(large, root, x));
    Value* doubled = b_.CreateFAdd(r, r);
    // pi/2 - asin(x); 2 asin(sqrt((1-x)/2)); pi less that for negative x. pi and pi/2 in two parts.
    Value* middle = b_.CreateFAdd(b_.CreateFSub(real(x, -4.37113883e-8f), r), real(x, 1.57079637f));
    Value* left = b_.CreateFAdd(b_.CreateFSub(real(x, -8.74227766e-8f), doubled), real(x, 3.14159274f));
    Value* outer = choose(b_.CreateFCmpOLT(x, real(x, 0)), left, doubled);
    return choose(large, outer, middle);
}

}  // namespace tessera::codegen
