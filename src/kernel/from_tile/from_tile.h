// A tile program as a kernel for a processor: one iteration of a parallel loop is one instance of the program. Values
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
// of the grid from here on have one instance. E0604: the program does what no kernel can (a pointer that may point into
// two arrays).
Result<Kernel> from_tile(const tile::Program& program, const std::vector<tile::Argument>& arguments, int grid_rank,
                         const Machine& machine, bool apart = false);

}  // namespace tessera
