// Lanes whose index wraps around, mod(i + lane, n), lie together in memory unless they wrap right there; and a mask,
// i + lane < n, mostly holds in all lanes. Vector loops with such expressions become two, and a branch.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera::from_tile_detail {

void unwrap_lanes(Kernel& kernel, bool bounded = false);

}  // namespace tessera::from_tile_detail
