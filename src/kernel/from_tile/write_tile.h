// The kernel of a node that runs a tile program: its outputs are filled first, then the program runs over its grid. The
// program comes from a model: it reaches no memory but the node's tensors. E0604: no kernel for this machine.
#pragma once

#include "base/machine.h"
#include "graph/tile_call.h"
#include "kernel/written/write_kernel.h"

namespace tessera {

Result<WrittenKernel> write_tile_kernel(const Node& node, const Machine& machine);

}  // namespace tessera
