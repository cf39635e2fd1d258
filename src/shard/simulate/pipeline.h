// Stages of a pipeline over microbatches: the order in which each stage computes, when it does, and how many
// microbatches it keeps activations of.
#pragma once

#include <string_view>
#include <vector>

#include "base/error.h"

namespace tessera::shard {

enum class PipelineSchedule : uint8_t {
    GPipe,        // all forward passes, then all backward passes
    OneFOneB,     // a backward pass as soon as there is one: at most as many microbatches in flight as stages
    Interleaved,  // the same, each device with several chunks of layers that lie a round apart
};
Result<PipelineSchedule> read_schedule(std::string_view name);  // E0501
std::string_view schedule_name(PipelineSchedule schedule);

struct ChunkTime {
    double forward = 0, backward = 0;  // seconds of one microbatch; no backward pass where only inference runs
    double sends_forward = 0, sends_backward = 0;  // seconds until the next chunk, or the one before, has it
};

struct PipelineShape {
    PipelineSchedule schedule = PipelineSchedule::OneFOneB;
    int64_t stages = 1, microbatches = 1;
    int64_t chunks = 1;    // of each stage, where it is interleaved
    bool training = true;  // there are backward passes
};

struct PipelineEvent {
    int64_t stage = 0, chunk = 0, microbatch = 0;
    bool forward = true;
    double begin = 0, end = 0;
};

struct PipelineTime {
    std::vector<std::vector<PipelineEvent>> stages;  // in the order in which each computes
    double seconds = 0;
    std::vector<double> busy;        // seconds, by stage
    std::vector<int64_t> in_flight;  // chunks of microbatches whose activations a stage keeps, at most
    double bubble() const;           // the share of the stages' time in which they wait
};

// `chunk_times`: in the order of the layers, chunk c of stage s at c * stages + s. E0501 where an interleaved
// schedule's microbatches are no multiple of the stages.
Result<PipelineTime> pipeline_time(const PipelineShape& options, const std::vector<ChunkTime>& chunk_times);

}  // namespace tessera::shard
