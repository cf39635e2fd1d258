// The same contraction on GPUs whose matrix instructions read shared memory, which whole tiles are copied to while others
// are multiplied (kernel/ir/tile_copy.h). A block computes one tile; what is fetched ahead for it, and how blocks share
// a multiprocessor, the code generator sees to.
#pragma once

#include "base/machine.h"
#include "kernel/gpu/contraction_kernel.h"

namespace tessera {

// By the sizes of the output.
BlockTile choose_wgmma_tile(int64_t batch, int64_t m, int64_t n);
// Of a contraction whose axes are batch, where there is one, rows, columns and one k. `out` makes of each sum what is
// stored. Empty where an operand is not simply read, or does not lie so that tiles of it can be copied.
std::optional<TiledKernel> wgmma_kernel(const Schedule& s, const Stage& sum, const Stage& out, bool has_batch, int a,
                                        const BlockTile& tile, int64_t parts);

}  // namespace tessera
