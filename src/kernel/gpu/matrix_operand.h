// Operands of a contraction as matrix instructions take them: before they were widened for the sum.
#pragma once

#include "kernel/ir/compute.h"

namespace tessera {

// An operand before it was widened, where it was: also in a branch, the other one being zero. A float of 8 bits, as
// f16. Of i32, the byte that it was; in a branch, both being bytes.
std::optional<Expr> narrowed(const Expr& operand);

// A value of 16 bits that was widened to f32 and narrowed again, before that.
Expr as_narrow(Expr e);

// The load that an operand is, and what it is of: f16, bf16, i8 and u8 for sums in i32, or a float of 8 bits, which
// lies in memory as a byte.
struct MatrixLoad {
    Expr load;
    DType dtype = DType::f16;
};
std::optional<MatrixLoad> matrix_load(const Expr& operand);

// A sum of products of floats of 8 bits that are multiplied by what is the same for all of a sum, as scales are: the
// sum of the products alone, times that. What was rounded on the way is not. Nothing where it is something else.
std::optional<Compute> with_factors_behind(const Compute& compute);

}  // namespace tessera
