// Memory of a GPU and a stream of its own, for collectives between GPUs.
#pragma once

#include "runtime/collectives/run_wires.h"

namespace tessera {

Result<std::unique_ptr<shard::WireMemory>> gpu_memory(int gpu);  // E0701 if there is no such GPU

}  // namespace tessera
