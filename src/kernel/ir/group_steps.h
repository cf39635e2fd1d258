// What the warps of a block do together, outside of loops over threads, with buffers of which each thread has its own
// part, [warp, 8, 4, elements]:
//
//   call quad_max(x[0, 0, 0, 0]; x[0, 0, 0, 0]; )   the four threads of a group all get the largest of what they have
//   call quad_sum(x[0, 0, 0, 0]; x[0, 0, 0, 0]; )   the same of the sum
//   call wait_product(x[0, 0, 0, 0]; ; )            the product that was begun into x is there from here on, and not
//                                                   before; what it reads is not changed until here
//   call swap_lanes(y[0, 0, 0, 0]; x[0, 0, 0, 0]; m)  y of each thread is x of the thread of its warp whose lane differs
//                                                   in the bits of m: a butterfly shuffle. Buffers are [z, y, x,
//                                                   elements], of all threads of a block; a warp is 32 neighbours
//                                                   along x, or 32 / x lines of them
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

constexpr const char *kQuadMax = "quad_max", *kQuadSum = "quad_sum", *kWaitProduct = "wait_product",
                     *kSwapLanes = "swap_lanes";

bool is_group_step(const Call& call);
// What is wrong with the arguments of a step.
std::optional<std::string> misused_step(const Kernel& kernel, const Call& call);

// Products that go on after their call (Intrinsic::later) are waited for in the sequence that begins them, in the order
// in which they were begun: what breaks that.
std::optional<std::string> misused_product(const Stmt& s);

// The kernel with loops instead. A product is carried out where it is waited for: whoever reads its result too early
// reads what was there before, and what it reads must still be there.
Kernel expand_group_steps(const Kernel& kernel);

}  // namespace tessera
