// Functions of f32 as straight code for scalars and vectors alike, from range reduction and minimax polynomials.
// Largest errors, in units in the last place, over all floats: see docs/vector_math.md. NaN, infinities, zeros of both
// signs and subnormal numbers come out as from libm.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <initializer_list>

#include "expr/expr.h"
#include "llvm/targets/target.h"

namespace tessera::codegen {

class VectorMath {
  public:
    using Value = llvm::Value;
    VectorMath(llvm::IRBuilderBase& builder, const Target& target) : b_(builder), target_(target) {}

    // Null where there is no such code.
    Value* call(Fn fn, Value* x);
    // sin, cos and tan are only right up to here; beyond, but not at infinity, ask libm.
    static constexpr float kLargestAngle = 1.0e6f;
    static bool is_periodic(Fn fn) { return fn == Fn::Sin || fn == Fn::Cos || fn == Fn::Tan; }

    Value* exp(Value* x);
    Value* exp_up_to_one(Value* x);  // of x <= 0, NaN or -inf: what would be subnormal is 0
    Value* expm1(Value* x);
    Value* sigmoid_of_minus(Value* x);  // 1 / (1 + exp(x)), down to 1e-38
    Value* log(Value* x);
    Value* log1p(Value* x);
    Value* tanh(Value* x);
    Value* erf(Value* x);
    Value* sinh(Value* x);
    Value* cosh(Value* x);
    Value* periodic(Fn fn, Value* x);
    Value* atan(Value* x);
    Value* asin(Value* x);
    Value* acos(Value* x);

    // The larger (smaller) of two, or NaN where one is.
    Value* extreme(bool largest, Value* a, Value* b);

  private:
    // x = n * ln 2 + rest, |rest| <= ln 2 / 2.
    struct Halvings {
        Value *n, *rest;  // n: i32
    };
    Halvings halvings(Value* x);
    Value* expm1_of_rest(Value* rest);
    Value* power_of_two(Value* n);  // of an i32 in [-126, 127]
    Value* log_of(Value* mantissa_less_one, Value* exponent);
    Value* asin_small(Value* x);
    Value* quotient(Value* a, Value* b);

    Value* real(Value* like, float c);
    Value* integer(Value* like, int32_t c);
    llvm::Type* ints(Value* like);
    Value* bits(Value* x);
    Value* from_bits(Value* i, Value* like);
    Value* fma(Value* a, Value* b, Value* c);
    Value* fma(Value* a, float b, Value* c) { return fma(a, real(a, b), c); }
    Value* polynomial(Value* x, std::initializer_list<double> low_first);
    Value* magnitude(Value* x);
    Value* at_most(Value* x, float c) { return extreme(false, x, real(x, c)); }
    Value* at_least(Value* x, float c) { return extreme(true, x, real(x, c)); }
    Value* choose(Value* c, Value* a, Value* b) { return b_.CreateSelect(c, a, b); }
    Value* with_sign(Value* x, Value* sign) { return b_.CreateCopySign(x, sign); }

    llvm::IRBuilderBase& b_;
    const Target& target_;
};

}  // namespace tessera::codegen
