// A graph that computes a result and gradients, as two: the forward pass, and the backward pass from what the forward
// pass keeps of each microbatch.
#pragma once

#include "graph/graph.h"

namespace tessera::shard {

enum class Recompute : uint8_t {
    None,       // the backward pass reads what the forward pass computed
    Selective,  // it computes again what takes few operations for its bytes: norms, activations, scores of attention
    Full,       // it computes the forward pass again from the graph's inputs
};
Result<Recompute> read_recompute(std::string_view name);  // E0501

struct SplitPasses {
    std::shared_ptr<Graph> forward;   // its outputs: the result, then what is kept
    std::shared_ptr<Graph> backward;  // its inputs: the graph's, then what is kept; its outputs: the gradients
    size_t inputs = 0;                // of the graph
    size_t kept = 0;
};

// Output 0 of the graph is the result, the others are gradients.
Result<SplitPasses> split_passes(const Graph& graph, Recompute recompute);

}  // namespace tessera::shard
