// Quotients and remainders that are the same in each iteration of a loop are computed in front of it.
#pragma once

#include "kernel/from_tile/layout.h"

namespace tessera::from_tile_detail {

// In block loops: of indices such as (i + place) % n, each thread keeps the remainder.
void hoist_divisions(Kernel& kernel);
// In serial loops of a processor.
void hoist_divisions_of_loops(Kernel& kernel);

}  // namespace tessera::from_tile_detail
