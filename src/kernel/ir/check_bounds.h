// Elements that a Compute uses outside of its buffers, as far as numbers show them. What a select guards, and indices
// that are known only later, are the promise of whoever wrote it.
#pragma once

#include "kernel/ir/compute.h"

namespace tessera {

bool leaves(const Expr& index, const Expr& size);  // numbers show that the index can be outside [0, size)
Status check_bounds(const Compute& compute);       // E0406 names the first

}  // namespace tessera
