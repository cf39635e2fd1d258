// Memory of a GPU and a stream of its own, for collectives between GPUs.
#pragma once

#include "runtime/collectives/run_wires.h"
#include "runtime/devices/device.h"

namespace tessera {

Result<std::unique_ptr<shard::WireMemory>> gpu_memory(int gpu);  // E0701 if there is no such GPU
Result<DeviceScope> enter_gpu(int gpu);                          // the same
std::string gpu_target(int gpu);                                 // that code is compiled for

// The GPU of the rank that is the `local`-th of this host, for a target; nothing where the target is none or a GPU that
// all would share, where the host has too few, or where NCCL is not installed.
std::optional<int> own_gpu(const std::string& target, int64_t local, int64_t local_ranks);

}  // namespace tessera
