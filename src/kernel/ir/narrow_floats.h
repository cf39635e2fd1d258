// Floats of 8 bits and fewer in kernels: bytes in memory, f32 where they are computed with, and whole-number arithmetic
// between the two, so that code generation needs to know nothing of them.
#pragma once

#include "expr/expr.h"

namespace tessera {

// The type by which a kernel reads and writes elements of t: a byte for these floats, else t itself.
DType stored_as(DType t);

Expr decoded(DType t, const Expr& bits);              // u8 to f32 (f64 for powers of two beyond it)
Expr encoded(DType t, const Expr& x, bool saturate);  // a number to u8, rounded to nearest even

}  // namespace tessera
