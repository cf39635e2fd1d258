// The same contraction with matrix instructions, for operands of 16 bits and bytes: four warps of a block share the
// rows of its tile, and their sums lie in the layout that the instruction gives them. What one thread has of a tile is
// a buffer with a place for each thread, which it alone uses: it stays in registers.
#pragma once

#include "kernel/gpu/contraction_kernel.h"

namespace tessera {

// How an operand is brought to shared memory.
struct OperandPlan {
    // Neighbours along k lie together in memory, and so in the tile; otherwise those along its side. Bytes lie along k
    // in the tile whichever way they come.
    bool along_k = false;
    int64_t width = 1;  // that many at a time; of bytes that do not lie along k, at most four
};

struct MmaPlan {
    BlockTile tile;
    OperandPlan a, b;
    Depth depth;
    int64_t store_width = 1;
    int64_t parts = 1;  // of the steps along k
};

BlockTile choose_mma_tile(const Machine& machine, int64_t batch, int64_t m, int64_t n, DType dtype);

// For a contraction with axes batch (optional), rows and columns. `out` maps each sum to the stored value.
TiledKernel mma_kernel(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch, int a,
                       const MmaPlan& plan);

}  // namespace tessera
