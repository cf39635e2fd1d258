// One rank of a partitioned model on a GPU of its own, with collectives between the GPUs.
#pragma once

#include "runtime/collectives/nccl.h"
#include "tessera/shard.h"

namespace tessera {

// The GPU of the rank that is the `local`-th of this host, for a target; nothing where the target is none or a GPU that
// all would share, where the host has too few, or where NCCL is not installed.
std::optional<int> own_gpu(const std::string& target, int64_t local, int64_t local_ranks);

// The outputs, in host memory. `inputs` in the order of the graph's.
Result<std::vector<Datum>> run_on_gpu(const shard::Plan& plan, int64_t rank, int gpu, const shard::NcclId& id,
                                      const std::vector<Datum>& inputs, CompileOptions options, ShardTimes& times);

}  // namespace tessera
