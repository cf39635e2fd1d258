// Expensive subexpressions of a map that depend on the lane axis but are shared by many rows: precomputed into a table
// by a separate stage.
#pragma once

#include "kernel/ir/compute.h"

namespace tessera {

// In Computes without reductions but those of a few elements: the places that an op picks its elements from, and other
// costly parts of a value that depend on the last axis, but not on all, come from a table.
Compute with_places(Compute compute);

// Does the stage make such a table?
bool makes_places(const Stage& stage);

}  // namespace tessera
