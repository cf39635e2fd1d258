// A tile program as a kernel. On a processor one iteration of a parallel loop is one instance of the program. Values
// that are read once are computed where they are read; the others lie in local memory.
//
// Integers that are added up to offsets, compared in masks or used as bounds of loops are computed in 64 bits: those of
// the program must not overflow there.
#pragma once

#include "base/machine.h"
#include "kernel/ir/kernel.h"
#include "tile/program.h"

namespace tessera {

// Buffers come in the order of the parameters, without those that are Shared or Size; symbols in the order grid.x,
// grid.y, grid.z, then those of the parameters: elements_NAME of an Array, NAME of Shared and Size. `grid_rank`: axes
// of the grid from here on have one instance. E0604: the program does what no kernel can.
struct TileKernel {
    Kernel kernel;
    // Pointers are places in all of memory: an Array is given by its address (symbol address_NAME) and no buffer, and
    // behind the other buffers come those of size `anywhere`, from address 0.
    bool by_address = false;
};
struct TileOptions {
    bool apart = false;       // each instruction by itself, for the interpreter
    bool by_address = false;  // where that is not needed, too
    int warps = 4;            // of a block, on a GPU
    int stages = 3;  // of loops with products there: tiles are brought one iteration less before they are needed
    // For untrusted programs: out-of-bounds loads give 0, out-of-bounds stores are dropped, tiles are read in bounds,
    // and a loop ends after tile::kMostTrips iterations. No raw addresses.
    bool bounded = false;
};
// On a GPU one block is one instance, its tiles spread over the block's threads (layout.h). Shared memory is free of
// races; of global memory that is the program's word.
Result<TileKernel> from_tile(const tile::Program& program, const std::vector<tile::Argument>& arguments, int grid_rank,
                             const Machine& machine, const TileOptions& options = {});
// A picture (SVG) of the tiles of a program on a GPU: which thread has which element.
Result<std::string> draw_layouts(const tile::Program& program, const std::vector<tile::Argument>& arguments,
                                 int grid_rank, const Machine& machine, int warps);

constexpr int64_t kAllElements = int64_t{1} << 60;  // of a buffer that is all of memory

}  // namespace tessera
