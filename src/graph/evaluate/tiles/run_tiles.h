// Runs a tile program, instance by instance and tile by tile: what each instruction gives is a body over the tiles that
// it is given, and strip/ computes it. Nothing outside of the arrays is reached: what is loaded from there is 0, and
// what is stored there is dropped.
#pragma once

#include <array>

#include "graph/evaluate/evaluate.h"
#include "tile/program.h"

namespace tessera {

// `arguments`: for each parameter, an array that its pointer points to, or one element. Arrays that the program writes
// are written in place. The program keeps to tile/verify.h, and each of its pointers to one array.
Status run_tiles(const tile::ProgramData& program, std::vector<Tensor> arguments, const std::array<int64_t, 3>& grid,
                 EvalContext& context);

}  // namespace tessera
