// A trained block on the ranks of one replica's stage: its passes partitioned by annotations, each as a plan of its
// own.
#pragma once

#include "shard/simulate/gpt_blocks.h"
#include "shard/simulate/rank_time.h"
#include "shard/simulate/split_passes.h"

namespace tessera::shard {

using Annotations = std::vector<std::pair<std::string, std::string>>;  // values by pattern, their shardings

struct BlockTime {
    RankTime forward, backward;
    double weights = 0;     // bytes of a rank
    double parameters = 0;  // that a rank has
    double all_parameters = 0;
    double kept = 0;         // bytes that a rank keeps of a microbatch between the passes
    double result = 0;       // bytes of a rank's part of the result
    double model_flops = 0;  // of the products that the passes need, of the whole block
};

struct BlockTimeOptions {
    Mesh mesh;
    Annotations annotations;
    Recompute recompute = Recompute::None;
    RankTimeOptions rank = {};
};

Result<BlockTime> block_time(const TrainedBlock& block, const Machine& machine, const Cluster& cluster,
                             const BlockTimeOptions& options);

// Shardings of the values that the annotations name. E0501
Result<Shardings> annotated_values(const Graph& graph, const Mesh& mesh, const Annotations& annotations);

double operations_per_byte(const Cluster& cluster);  // what a device computes in the time of a byte between devices

}  // namespace tessera::shard
