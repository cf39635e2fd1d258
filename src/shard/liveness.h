// Memory of a rank by liveness: the weights that it keeps, and at each step the tensors that later steps still read.
#pragma once

#include "shard/plan.h"

namespace tessera::shard {

struct PeakMemory {
    int64_t rank = 0;
    int64_t weights = 0, activations = 0;  // bytes; of weights, what the rank keeps of constants
    size_t step = 0;                       // after which the activations are most
    std::vector<const Value*> live = {};   // activations, inputs among them, at that step
    int64_t bytes() const { return weights + activations; }
};

// Of the rank that needs most.
PeakMemory peak_memory(const Plan& plan);

}  // namespace tessera::shard
