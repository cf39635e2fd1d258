// Functions of doubles as straight code, for targets that have no C library. Errors are a few units in the last place;
// angles beyond 1e9 lose digits, and so does a remainder whose quotient has more than 53 bits.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <string_view>
#include <vector>

namespace tessera::codegen {

class DoubleMath {
  public:
    using Value = llvm::Value;
    explicit DoubleMath(llvm::IRBuilderBase& builder) : b_(builder) {}

    // A function by its name in the C library; `y` of those with two arguments.
    Value* call(std::string_view name, Value* x, Value* y);

  private:
    Value* exp(Value* x);
    Value* expm1(Value* x);
    Value* log(Value* x);
    Value* log1p(Value* x);
    Value* sinh(Value* x);
    Value* cosh(Value* x);
    Value* tanh(Value* x);
    Value* asinh(Value* x);
    Value* acosh(Value* x);
    Value* atanh(Value* x);
    Value* erf(Value* x);
    Value* atan(Value* x);
    Value* asin(Value* x);
    Value* acos(Value* x);
    Value* atan2(Value* y, Value* x);
    Value* pow(Value* x, Value* y);
    Value* fmod(Value* x, Value* y);
    // Of x less the nearest multiple of pi/2, and which multiple that is, by its last two bits.
    struct Quarter {
        Value *sine, *cosine, *number;
    };
    Quarter quarter(Value* x);
    Value* sin(Value* x, bool cosine);

    Value* real(double c);
    Value* polynomial(Value* x, const std::vector<double>& low_first);
    Value* fma(Value* a, Value* b, Value* c);
    Value* add(Value* a, Value* b) { return b_.CreateFAdd(a, b); }
    Value* sub(Value* a, Value* b) { return b_.CreateFSub(a, b); }
    Value* mul(Value* a, Value* b) { return b_.CreateFMul(a, b); }
    Value* div(Value* a, Value* b) { return b_.CreateFDiv(a, b); }
    Value* one(llvm::Intrinsic::ID id, Value* x) { return b_.CreateUnaryIntrinsic(id, x); }
    Value* magnitude(Value* x);
    Value* sqrt(Value* x);
    Value* choose(Value* c, Value* a, Value* b) { return b_.CreateSelect(c, a, b); }
    Value* power_of_two(Value* n);  // of an i64 in [-1022, 1023]
    llvm::Type* ints();
    Value* integer(int64_t c);

    llvm::IRBuilderBase& b_;
    llvm::Type* type_ = nullptr;  // double, or a vector of them
};

}  // namespace tessera::codegen
