// Tiles that products of a loop need are brought some iterations before: the loop is marked with how many ("ahead"),
// and so are the nests over threads that bring them ("brings"). Whoever carries the kernel out as it is written need
// not know of it; the code generator has a ring of places for each such tile, and copies go on while threads multiply.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera::from_tile_detail {

void fetch_ahead(Kernel& kernel, int64_t iterations);

}  // namespace tessera::from_tile_detail
