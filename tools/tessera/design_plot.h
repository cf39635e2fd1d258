// Machines as points in SVG: area to the right, cycles upward, both logarithmic; a line through the best of them.
#pragma once

#include "tessera/explore.h"

namespace tessera::cli {

std::string design_plot(const std::vector<ExploredMachine>& machines, const std::vector<bool>& best,
                        const std::string& model);

}  // namespace tessera::cli
