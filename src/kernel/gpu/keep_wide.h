// What a kernel keeps for itself between reductions of rows stays in f32, and is not rounded to 16 bits on the way.
#pragma once

#include "kernel/ir/compute.h"

namespace tessera {

// Of a kernel with reductions. Results of 16 bits are multiplied with reciprocals instead of divided by what is the
// same along a row: one division for each thread.
void keep_wide(Compute& compute);

}  // namespace tessera
