// Tiles of the next iteration are loaded while this one computes.
#pragma once

#include "kernel/from_tile/layout.h"

namespace tessera::from_tile_detail {

// In loops of a block with products: loops over threads that bring tiles from global to shared memory are cut in two.
// In each iteration threads put what they have loaded into shared memory, and load what the next one needs.
void fetch_ahead(Kernel& kernel);

}  // namespace tessera::from_tile_detail
