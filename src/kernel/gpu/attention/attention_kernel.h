// Attention in one kernel: of many queries by warpgroups (warpgroup_attention.h) where the target has their
// instructions, else by warps (warp_attention.h). Where the number of queries is dynamic, both are there.
#pragma once

#include "base/machine.h"
#include "kernel/analyse/attention.h"
#include "kernel/analyse/scaled_load.h"
#include "kernel/backend/scheduling.h"
#include "kernel/gpu/contraction_kernel.h"

namespace tessera {

// Scores are any function of the product; intermediate 16-bit values stay in f32. Empty if no kernel supports it.
Result<std::optional<Lowered>> attention_kernel(const Compute& compute, const Machine& machine);

// Whether it supports attention of that form, and is worth it.
Decision suits_attention_kernel(const AttentionForm& form, const Machine& machine);

}  // namespace tessera
