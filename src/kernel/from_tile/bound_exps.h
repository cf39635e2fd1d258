// exp(x - m), where m is the largest element of a row of x, or something that is no less: of what is not positive.
#pragma once

#include "tile/program.h"

namespace tessera::from_tile_detail {

// Replaces the difference by min(x - m, 0), which is equal: CPUs have a shorter exp for such arguments.
void bound_exps(tile::ProgramData& program);

}  // namespace tessera::from_tile_detail
