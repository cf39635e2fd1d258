// Instructions of a loop that compute the same in each iteration move in front of it.
#pragma once

#include "tile/program.h"

namespace tessera::from_tile_detail {

void hoist_invariants(tile::ProgramData& program);

}  // namespace tessera::from_tile_detail
