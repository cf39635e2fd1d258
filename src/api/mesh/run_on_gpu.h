// One rank of a partitioned model on a GPU of its own, with collectives between the GPUs.
#pragma once

#include "runtime/collectives/nccl.h"
#include "tessera/shard.h"

namespace tessera {

// The outputs, in host memory. `inputs` in the order of the graph's.
Result<std::vector<Datum>> run_on_gpu(const shard::Plan& plan, int64_t rank, int gpu, const shard::NcclId& id,
                                      const std::vector<Datum>& inputs, CompileOptions options, ShardTimes& times);

}  // namespace tessera
