// Warp-level operations of a block, outside of thread loops, on buffers [warp, 8, 4, elements] of which each thread
// owns a part:
//
//   call quad_max(x[0, 0, 0, 0]; x[0, 0, 0, 0]; )   maximum over the four threads of a group; all four receive it
//   call quad_sum(x[0, 0, 0, 0]; x[0, 0, 0, 0]; )   the same for the sum
//   call wait_product(x[0, 0, 0, 0]; ; )            waits for the asynchronous product into x; x may be read only
//                                                   afterwards, and its operands must not change before
//   call swap_lanes(y[0, 0, 0, 0]; x[0, 0, 0, 0]; m)  butterfly shuffle: y of each thread is x of the thread of its
//                                                   warp whose lane number differs in the bits of m. Buffers are
//                                                   [z, y, x, elements] over all threads of a block; a warp is 32
//                                                   adjacent threads along x, or 32 / x rows of them
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

constexpr const char *kQuadMax = "quad_max", *kQuadSum = "quad_sum", *kWaitProduct = "wait_product",
                     *kSwapLanes = "swap_lanes";

bool is_group_step(const Call& call);
// The error in the arguments of such a call, if any.
std::optional<std::string> misused_step(const Kernel& kernel, const Call& call);

// Asynchronous products (Intrinsic::later) must be waited for in the sequence that starts them, in the order of their
// starts. Returns the violation, if any.
std::optional<std::string> misused_product(const Stmt& s);

// Expands the calls into loops. A product is computed at its wait, so a premature read of its result sees the old
// contents, and its operands must be unchanged until then.
Kernel expand_group_steps(const Kernel& kernel);

}  // namespace tessera
