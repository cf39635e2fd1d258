// Floats of at most 8 bits in kernels. They are bytes in memory and computed as f32; the conversions use integer
// arithmetic, so code generation needs no support for them.
#pragma once

#include "expr/expr.h"

namespace tessera {

// The type in which a kernel loads and stores elements of t: u8 for these floats, else t itself.
DType stored_as(DType t);

Expr decoded(DType t, const Expr& bits);              // u8 to f32 (f64 for powers of two beyond it)
Expr encoded(DType t, const Expr& x, bool saturate);  // a number to u8, rounded to nearest even

}  // namespace tessera
