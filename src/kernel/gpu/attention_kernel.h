// Attention in one kernel. Of many queries, for GPUs that have warpgroup instructions: a block takes 128 queries of one
// head. Keys and values come in tiles of 128 or 64, from the last that its queries see to the first; scores and weights
// of a tile stay with the threads, with a running maximum and sum for each query. While the product of one tile's
// weights with its values goes on, the scores of the next are made. All other attention: warp_attention.h.
#pragma once

#include "kernel/cpu/attention.h"
#include "kernel/gpu/contraction_kernel.h"

namespace tessera {

// Operands of 16 bits that lie in rows which begin at multiples of 16 bytes, heads of at most 256. Scores are any
// function of the product; what it rounds to 16 bits on the way stays in f32. Keys after those that a condition of the
// form key <= query + c lets a block see are not looked at. Empty: it is not of that form.
Result<std::optional<Lowered>> attention_kernel(const Compute& compute, const Machine& machine);

// The element that an operand is, also where it is multiplied with a constant or rounded.
struct ScaledLoad {
    Expr load;
    double factor = 1;
};
std::optional<ScaledLoad> scaled_load(const Expr& operand);
// Whether tiles of such elements can be multiplied.
inline bool is_copied(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace tessera
