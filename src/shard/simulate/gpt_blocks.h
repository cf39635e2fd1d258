// A GPT's parts as graphs of types alone: weights are inputs, and nothing is allocated. Each computes its result, and
// from the gradient of that the gradients of its inputs.
#pragma once

#include "graph/graph.h"
#include "tessera/simulate.h"

namespace tessera::shard {

struct TrainedBlock {
    std::shared_ptr<Graph> graph;  // output 0: the result; then the gradients of `wanted`
    size_t weights = 0;            // the inputs from here up to `gradient`
    size_t gradient = 0;           // the input that is the result's gradient; the number of inputs where there is none
    bool passes_back = true;       // output 1 is the gradient of input 0
};

Result<TrainedBlock> gpt_embedding(const GptShape& shape, int64_t batch);
Result<TrainedBlock> gpt_layer(const GptShape& shape, int64_t batch);
Result<TrainedBlock> gpt_head(const GptShape& shape, int64_t batch);  // the last norm, logits and loss

}  // namespace tessera::shard
