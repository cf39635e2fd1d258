// Tile programs for programs that do without Tessera: an object file, and a header of C that launches what is in it.
#pragma once

#include "tessera/tile.h"

namespace tessera::tile {

Result<AheadOfTime> compile_ahead(const Program& program, const std::vector<Argument>& arguments, int grid_rank,
                                  std::string_view target);

}  // namespace tessera::tile
