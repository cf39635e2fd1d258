// exp(x - m), where m is the largest element of a row of x, or something that is no less: of what is not positive.
#pragma once

#include "tile/program.h"

namespace tessera::from_tile_detail {

// The difference becomes min(x - m, 0), which is the same and says so: a processor has a shorter exp for it.
void bound_exps(tile::ProgramData& program);

}  // namespace tessera::from_tile_detail
