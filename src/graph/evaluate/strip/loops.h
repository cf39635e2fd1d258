// The loops of the strip engine: one operation over a run of lanes. Floats are double, everything else int64.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "expr/expr.h"

namespace tessera::strip {

// An operand: one value a lane, or one value for all of them.
template <typename T>
struct Lanes {
    const T* at;
    bool uniform;
};
using Reals = Lanes<double>;
using Ints = Lanes<int64_t>;

void real_binary(ExprKind kind, Reals a, Reals b, int64_t n, double* out);
void real_compare(ExprKind kind, Reals a, Reals b, int64_t n, int64_t* out);
void real_call(Fn fn, Reals a, Reals b, int64_t n, double* out);
void real_test(Fn fn, Reals a, int64_t n, int64_t* out);  // IsNan, IsInf

// Integers of dtype t, held in its range; u64 is held as its bits.
void int_binary(ExprKind kind, DType t, Ints a, Ints b, int64_t n, int64_t* out);
void int_compare(ExprKind kind, DType t, Ints a, Ints b, int64_t n, int64_t* out);
void int_unary(ExprKind kind, Fn fn, DType t, Ints a, int64_t n, int64_t* out);  // Neg, Not, BitNot, Call
void int_dot(Fn fn, Ints a, Ints b, int64_t n, int64_t* out);  // DotI8, DotU8I8

void cast_real_to_real(DType to, bool saturate, Reals a, int64_t n, double* out);
void cast_real_to_int(DType to, bool saturate, Reals a, int64_t n, int64_t* out);
void cast_int_to_real(DType from, DType to, bool saturate, Ints a, int64_t n, double* out);
void cast_int_to_int(DType from, DType to, bool saturate, Ints a, int64_t n, int64_t* out);

// out[i] = data[offsets[i]]
void gather_reals(DType t, const void* data, const int64_t* offsets, int64_t n, double* out);
void gather_ints(DType t, const void* data, const int64_t* offsets, int64_t n, int64_t* out);

// acc[i] = op(acc[i], v[i]), and all lanes of acc into one.
double real_identity(ReduceOp op);
int64_t int_identity(ReduceOp op, DType t);
void accumulate(ReduceOp op, Reals v, int64_t n, double* acc);
void accumulate(ReduceOp op, DType t, Ints v, int64_t n, int64_t* acc);
void accumulate_compensated(Reals v, int64_t n, double* acc, double* lost);  // the true sum is acc + lost
double combine(ReduceOp op, const double* acc, int64_t n);
int64_t combine(ReduceOp op, DType t, const int64_t* acc, int64_t n);
double combine_compensated(const double* acc, const double* lost, int64_t n);

}  // namespace tessera::strip
