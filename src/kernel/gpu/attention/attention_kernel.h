// Attention in one kernel: of many queries by warpgroups (warpgroup_attention.h) where the target has their
// instructions, else by warps (warp_attention.h). Where the number of queries is dynamic, both are there.
#pragma once

#include "base/machine.h"
#include "kernel/analyse/attention.h"
#include "kernel/gpu/contraction_kernel.h"

namespace tessera {

// Scores are any function of the product; intermediate 16-bit values stay in f32. Empty if no kernel supports it.
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
