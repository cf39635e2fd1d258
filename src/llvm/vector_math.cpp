#include "llvm/vector_math.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <cmath>
#include <limits>
#include <vector>

#include "llvm/targets/target_code.h"

namespace tessera::codegen {
namespace {

constexpr float kLog2e = 1.44269504088896341f;
// ln 2 in two parts, of which the first has few bits: its product with a small integer is exact.
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440054690583e-4f;
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits
constexpr int32_t kRounderBits = 0x4b400000;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kSmallestNormal = std::numeric_limits<float>::min();

}  // namespace

VectorMath::Value* VectorMath::call(Fn fn, Value* x) {
    switch (fn) {
        case Fn::Exp: return exp(x);
        case Fn::Expm1: return expm1(x);
        case Fn::Log: return log(x);
        case Fn::Log1p: return log1p(x);
        case Fn::Tanh: return tanh(x);
        case Fn::Erf: return erf(x);
        case Fn::Sinh: return sinh(x);
        case Fn::Cosh: return cosh(x);
        case Fn::Sin:
        case Fn::Cos:
        case Fn::Tan: return periodic(fn, x);
        case Fn::Atan: return atan(x);
        case Fn::Asin: return asin(x);
        case Fn::Acos: return acos(x);
        default: return nullptr;
    }
}

VectorMath::Value* VectorMath::real(Value* like, float c) { return llvm::ConstantFP::get(like->getType(), c); }

llvm::Type* VectorMath::ints(Value* like) {
    llvm::Type* type = like->getType();
    const unsigned width = type->getScalarSizeInBits();
    llvm::Type* scalar = b_.getIntNTy(width);
    if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type))
        return llvm::FixedVectorType::get(scalar, vector->getNumElements());
    return scalar;
}

VectorMath::Value* VectorMath::integer(Value* like, int32_t c) { return llvm::ConstantInt::get(ints(like), c, true); }
VectorMath::Value* VectorMath::bits(Value* x) { return b_.CreateBitCast(x, ints(x)); }
VectorMath::Value* VectorMath::from_bits(Value* i, Value* like) { return b_.CreateBitCast(i, like->getType()); }
VectorMath::Value* VectorMath::magnitude(Value* x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }

VectorMath::Value* VectorMath::fma(Value* a, Value* b, Value* c) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {a->getType()}, {a, b, c});
}

VectorMath::Value* VectorMath::polynomial(Value* x, std::initializer_list<double> low_first) {
    const std::vector<double> c(low_first);
    Value* sum = llvm::ConstantFP::get(x->getType(), c.back());
    for (size_t i = c.size() - 1; i-- > 0;) sum = fma(sum, x, llvm::ConstantFP::get(x->getType(), c[i]));
    return sum;
}

VectorMath::Value* VectorMath::extreme(bool largest, Value* a, Value* b) {
    return target_.code->extreme(b_, target_.machine, largest, a, b);
}

VectorMath::Halvings VectorMath::halvings(Value* x) {
    Value* shifted = fma(x, kLog2e, real(x, kRounder));
    Value* n = b_.CreateFSub(shifted, real(x, kRounder));
    Value* rest = fma(n, -kLn2High, x);
    rest = fma(n, -kLn2Low, rest);
    return {b_.CreateSub(bits(shifted), integer(x, kRounderBits)), rest};
}

VectorMath::Value* VectorMath::power_of_two(Value* n) {
    Value* biased = b_.CreateAdd(n, llvm::ConstantInt::get(n->getType(), 127));
    return b_.CreateShl(biased, llvm::ConstantInt::get(n->getType(), 23));
}

// rest + rest^2 q(rest), relative error 1.4e-8.
VectorMath::Value* VectorMath::expm1_of_rest(Value* rest) {
    Value* q = polynomial(rest, {0.4999999809923015, 0.16666541195005263, 0.041667210361955434, 0.008366846569209588,
                                 0.0013882460297163929});
    return fma(b_.CreateFMul(rest, rest), q, rest);
}

// 2^n times 1 + r + r^2 q(r), relative error 3e-9. 2^n is two factors, since alone it may overflow or be subnormal: the
// biased exponents of both add up to n + 254, which the low bits hold after rounding.
VectorMath::Value* VectorMath::exp(Value* x) {
    x = at_least(at_most(x, 89.0f), -104.0f);
    Value* rounder = real(x, kRounder + 254);
    Value* shifted = fma(x, kLog2e, rounder);
    Value* n = b_.CreateFSub(shifted, rounder);
    Value* r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
    Value* e = polynomial(r, {1.0, 1.0, 0.49999993253688213, 0.1666651776251651, 0.04166842181590073,
                              0.008369063451101522, 0.0013813880849100494});
    if (Value* done = target_.code->times_power(b_, target_.machine, e, n)) return done;
    Value* both = bits(shifted);
    Value* one = b_.CreateLShr(both, integer(x, 1));
    Value* other = b_.CreateSub(both, one);
    e = b_.CreateFMul(e, from_bits(b_.CreateShl(one, integer(x, 23)), x));
    return b_.CreateFMul(e, from_bits(b_.CreateShl(other, integer(x, 23)), x));
}

// As above, for results of at most 1 and a polynomial with a relative error of 1.1e-7: 2^n is one factor, 0 from 2^-127
// on.
VectorMath::Value* VectorMath::exp_up_to_one(Value* x) {
    x = at_least(x, -88.0f);
    Value* rounder = real(x, kRounder + 127);
    Value* shifted = fma(x, kLog2e, rounder);
    Value* n = b_.CreateFSub(shifted, rounder);
    Value* r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
    Value* square = b_.CreateFMul(r, r);
    Value* q = fma(square, polynomial(r, {0.041892300965702386, 0.008312287700339057}),
                   polynomial(r, {0.49999216883116365, 0.16667123772173167}));
    Value* e = fma(square, q, b_.CreateFAdd(r, real(x, 1)));
    return b_.CreateFMul(e, from_bits(b_.CreateShl(bits(shifted), integer(x, 23)), x));
}

// exp as above, but with a shorter polynomial (relative error 1.1e-7) and no need for more than the normal numbers: for
// 88.6, 2^n is infinite and the result 0.
VectorMath::Value* VectorMath::sigmoid_of_minus(Value* x) {
    x = at_least(at_most(x, 88.6f), -87.0f);
    Value* rounder = real(x, kRounder + 127);
    Value* shifted = fma(x, kLog2e, rounder);
    Value* n = b_.CreateFSub(shifted, rounder);
    Value* r = fma(n, -kLn2Low, fma(n, -kLn2High, x));
    Value* e =
        polynomial(r, {1.0, 1.0, 0.49999216883116365, 0.16667123772173167, 0.041892300965702386, 0.008312287700339057});
    Value* power = from_bits(b_.CreateShl(bits(shifted), integer(x, 23)), x);
    return quotient(real(x, 1), fma(e, power, real(x, 1)));
}

// By a divisor that is neither large nor small. On a GPU it takes a tenth of what exact division does, and is wrong by
// at most two units in the last place.
VectorMath::Value* VectorMath::quotient(Value* a, Value* b) {
    if (!target_.machine.blocks) return b_.CreateFDiv(a, b);
    auto inverse = [&](Value* x) { return b_.CreateIntrinsic(llvm::Intrinsic::nvvm_rcp_approx_ftz_f, {}, {x}); };
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(b->getType());
    if (!vector) return b_.CreateFMul(a, inverse(b));
    Value* all = llvm::PoisonValue::get(vector);
    for (unsigned i = 0; i < vector->getNumElements(); ++i)
        all = b_.CreateInsertElement(all, inverse(b_.CreateExtractElement(b, i)), i);
    return b_.CreateFMul(a, all);
}

VectorMath::Value* VectorMath::expm1(Value* x) {
    Value* y = at_least(at_most(x, 89.0f), -20.0f);
    auto [n, rest] = halvings(y);
    Value* half = from_bits(power_of_two(b_.CreateSub(n, integer(x, 1))), x);  // 2^n may overflow
    Value* e = fma(half, expm1_of_rest(rest), b_.CreateFSub(half, real(x, 0.5f)));
    return choose(b_.CreateFCmpOEQ(x, real(x, 0)), x, b_.CreateFAdd(e, e));
}

// x p(x^2) / q(x^2), relative error 2e-8 up to where tanh rounds to 1. Beyond, the quotient is so much above 1 that it
// is 1 whatever was rounded: 1 + tanh(x) is 0 for all small x.
VectorMath::Value* VectorMath::tanh(Value* x) {
    Value* y = at_most(at_least(x, -10.0f), 10.0f);
    Value* z = b_.CreateFMul(y, y);
    Value* p = polynomial(z, {0.999999979028658, 0.13379723489009382, 0.0034940408688846447, 2.058357399120417e-05,
                              1.3319180008851371e-08});
    Value* q =
        polynomial(z, {1.0, 0.4671303873990018, 0.025871097929274025, 0.0003283102675576921, 7.762067969476648e-07});
    return at_most(at_least(quotient(b_.CreateFMul(y, p), q), -1), 1);
}

// The same for erf.
VectorMath::Value* VectorMath::erf(Value* x) {
    Value* y = at_most(at_least(x, -4.2f), 4.2f);
    Value* z = b_.CreateFMul(y, y);
    Value* p = polynomial(z, {1.1283791454356336, 0.19078190328496936, 0.05278991876391392, 0.003779490100245767,
                              0.0002847997196692338, 2.0419076983997806e-06});
    Value* q = polynomial(z, {1.0, 0.5024087808960651, 0.11425662136198045, 0.014997211582339708, 0.001165171797488101,
                              3.8002949521625056e-05});
    return at_most(at_least(quotient(b_.CreateFMul(y, p), q), -1), 1);
}

VectorMath::Value* VectorMath::sinh(Value* x) {
    // Half the argument where the whole one overflows before the result does.
    Value *a = magnitude(x), *large = b_.CreateFCmpOGT(a, real(x, 88.0f));
    Value* e = expm1(choose(large, b_.CreateFMul(a, real(x, 0.5f)), a));
    Value* plus = b_.CreateFAdd(e, real(x, 1));
    Value* small = b_.CreateFMul(b_.CreateFAdd(e, b_.CreateFDiv(e, plus)), real(x, 0.5f));
    Value* square = b_.CreateFMul(b_.CreateFMul(plus, real(x, 0.5f)), plus);
    return with_sign(choose(large, square, small), x);
}

VectorMath::Value* VectorMath::cosh(Value* x) {
    Value *a = magnitude(x), *large = b_.CreateFCmpOGT(a, real(x, 88.0f));
    Value* e = exp(choose(large, b_.CreateFMul(a, real(x, 0.5f)), a));
    Value* half = b_.CreateFMul(e, real(x, 0.5f));
    return choose(large, b_.CreateFMul(half, e), b_.CreateFAdd(half, b_.CreateFDiv(real(x, 0.5f), e)));
}

// log(1 + f) + exponent * ln 2 for f in [sqrt(1/2) - 1, sqrt(2) - 1]: f - f^2 / 2 + f^3 p(f), relative error 6e-9.
VectorMath::Value* VectorMath::log_of(Value* f, Value* exponent) {
    Value* k = b_.CreateSIToFP(exponent, f->getType());
    Value* square = b_.CreateFMul(f, f);
    Value* p = polynomial(f, {0.33333331707117564, -0.25000821024592573, 0.2000122689062753, -0.1662335766037611,
                              0.14201758008318197, -0.1316017973571534, 0.12761575883015597, -0.07634501388061336});
    Value* y = b_.CreateFMul(b_.CreateFMul(square, f), p);
    y = fma(k, kLn2Low, y);
    y = fma(square, -0.5f, y);
    return fma(k, kLn2High, b_.CreateFAdd(f, y));
}

VectorMath::Value* VectorMath::log(Value* x) {
    constexpr int32_t kRootHalf = 0x3f3504f3;
    Value* tiny = b_.CreateFCmpOLT(x, real(x, kSmallestNormal));
    Value* scaled = choose(tiny, b_.CreateFMul(x, real(x, 8388608.0f)), x);
    Value* moved = b_.CreateSub(bits(scaled), integer(x, kRootHalf));
    Value* exponent = b_.CreateAShr(moved, integer(x, 23));
    exponent = b_.CreateSub(exponent, choose(tiny, integer(x, 23), integer(x, 0)));
    Value* mantissa = b_.CreateAdd(b_.CreateAnd(moved, integer(x, 0x7fffff)), integer(x, kRootHalf));
    Value* r = log_of(b_.CreateFSub(from_bits(mantissa, x), real(x, 1)), exponent);
    r = choose(b_.CreateFCmpULT(x, real(x, kInfinity)), r, x);
    r = choose(b_.CreateFCmpUGT(x, real(x, 0)), r, real(x, std::numeric_limits<float>::quiet_NaN()));
    r = choose(b_.CreateFCmpOEQ(x, real(x, 0)), real(x, -kInfinity), r);
    return choose(b_.CreateFCmpUNO(x, x), x, r);
}

// The logarithm of u = 1 + x rounded, with what the rounding lost added to its mantissa.
VectorMath::Value* VectorMath::log1p(Value* x) {
    constexpr int32_t kRootHalf = 0x3f3504f3;
    Value *one = real(x, 1), *u = b_.CreateFAdd(x, one);
    Value* back = b_.CreateFSub(u, one);
    Value* lost = b_.CreateFAdd(b_.CreateFSub(one, b_.CreateFSub(u, back)), b_.CreateFSub(x, back));
    Value* moved = b_.CreateSub(bits(u), integer(x, kRootHalf));
    Value* exponent = b_.CreateAShr(moved, integer(x, 23));
    Value* mantissa = b_.CreateAdd(b_.CreateAnd(moved, integer(x, 0x7fffff)), integer(x, kRootHalf));
    Value* f = b_.CreateFSub(from_bits(mantissa, x), one);
    Value* scale = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, exponent, integer(x, 126));
    f = fma(lost, from_bits(power_of_two(b_.CreateNeg(scale)), x), f);
    Value* r = log_of(f, exponent);
    r = choose(b_.CreateFCmpULT(x, real(x, kInfinity)), r, x);
    r = choose(b_.CreateFCmpUGT(u, real(x, 0)), r, real(x, std::numeric_limits<float>::quiet_NaN()));
    r = choose(b_.CreateFCmpOEQ(x, real(x, -1)), real(x, -kInfinity), r);
    Value* as_it_is = b_.CreateOr(b_.CreateFCmpUNO(x, x), b_.CreateFCmpOEQ(x, real(x, 0)));
    return choose(as_it_is, x, r);
}

}  // namespace tessera::codegen
