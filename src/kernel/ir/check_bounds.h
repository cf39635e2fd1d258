// Finds accesses of a Compute outside of its buffers, as far as constants show them. Accesses guarded by a select, and
// dynamic indices, are the author's responsibility.
#pragma once

#include "kernel/ir/compute.h"

namespace tessera {

bool leaves(const Expr& index, const Expr& size);  // numbers show that the index can be outside [0, size)
Status check_bounds(const Compute& compute);       // E0406 names the first

}  // namespace tessera
