// The same contraction by multiply-adds: each thread of a block adds up a small tile in registers.
#pragma once

#include "kernel/gpu/contraction_kernel.h"

namespace tessera {

struct FmaPlan {
    BlockTile tile;
    Depth depth;
    int64_t store_width = 1;
    int64_t parts = 1;  // of the steps along k
};

// Of a contraction whose axes are batch, where there is one, rows and columns. `out` makes of each sum what is stored.
TiledKernel fma_kernel(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch, int a,
                       const FmaPlan& plan);

}  // namespace tessera
