// A training step over replicas, stages of a pipeline and the ranks of a stage, composed of blocks that were each
// simulated once: its timeline, and the memory of each stage.
#pragma once

#include "shard/simulate/block_time.h"
#include "shard/simulate/pipeline.h"

namespace tessera::shard {

struct TrainingBlocks {
    BlockTime embedding, layer, head;
    int64_t layers = 0;
};

struct TrainingShape {
    PipelineShape pipeline;
    int64_t replicas = 1;
    GroupShape replica_group;      // of the ranks that hold the same parameters
    GroupShape stage_pair;         // a rank and its peer on the next stage
    bool overlap = false;          // gradients are reduced beside the last backward pass
    bool shard_optimizer = false;  // over the replicas
};

struct TrainingTime {
    PipelineTime pipeline;
    struct Stage {
        int64_t layers = 0;
        bool embeds = false, ends = false;
        double parameters = 0;             // of a rank
        double forward = 0, backward = 0;  // seconds of a microbatch
        double computing = 0;              // of these
        double reduction = 0, update = 0;  // seconds, once in a step
        double reduction_begin = 0, update_begin = 0, end = 0;
        double reduced = 0;  // bytes
        SimulatedMemory memory;
    };
    std::vector<Stage> stages;
    double seconds = 0;
    double all_parameters = 0;
    double model_flops = 0;    // of a replica's step
    double product_flops = 0;  // of a device on average
};

// `update_seconds`: of the optimizer for so many parameters.
Result<TrainingTime> training_time(const TrainingBlocks& blocks, const TrainingShape& shape, const Cluster& cluster,
                                   const std::function<Result<double>(double parameters)>& update_seconds);

// AdamW over f32 parameters, with their copy in bf16: the graph of its update, as training compiles it.
Result<double> adamw_seconds(double parameters, const Machine& machine, const Cluster& cluster);

// Bytes of each parameter in mixed precision: the gradients that are added up in f32, and the optimizer's f32 copy and
// two averages.
inline constexpr double kGradientBytes = 4, kOptimizerBytes = 12;

}  // namespace tessera::shard
