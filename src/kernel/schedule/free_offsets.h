// Constants from which on a compute reads a buffer, as symbols: computes that differ in nothing else (slices of one
// tensor, steps of an unrolled recurrence) become equal, and one kernel serves them all.
#pragma once

#include "kernel/ir/compute.h"

namespace tessera {

// Puts a symbol in the place of each constant from which on a part of a parameter's dimension is read, and gives what
// each of the new symbols is. Constant parameters keep theirs: what is prepared ahead of runs has no symbols.
std::vector<int64_t> free_offsets(Compute& compute);

}  // namespace tessera
