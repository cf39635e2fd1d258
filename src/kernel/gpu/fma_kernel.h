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

// For a contraction with axes batch (optional), rows and columns. `out` maps each sum to the stored value.
TiledKernel fma_kernel(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch, int a,
                       const FmaPlan& plan);

}  // namespace tessera
