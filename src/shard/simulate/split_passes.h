// A graph that computes a result and gradients, as two: the forward pass, and the backward pass from what the forward
// pass keeps of each microbatch.
#pragma once

#include "graph/graph.h"

namespace tessera::shard {

enum class Recompute : uint8_t {
    None,       // the backward pass computes again what is computed element by element, and norms: as parts of kernels
    Selective,  // and what takes few operations for its bytes: the scores of attention
    Full,       // it computes the forward pass again from the graph's inputs
};
Result<Recompute> read_recompute(std::string_view name);  // E0501

struct SplitPasses {
    std::shared_ptr<Graph> forward;   // its outputs: the result, then what is kept
    std::shared_ptr<Graph> backward;  // its inputs: the graph's, then what is kept; its outputs: the gradients
    size_t inputs = 0;                // of the graph
    size_t kept = 0;
};

// A copy of what computes `outputs` from the graph's inputs and from `given`, which are inputs after these.
Result<std::shared_ptr<Graph>> subgraph(const Graph& graph, const std::string& name,
                                        const std::vector<const Value*>& given,
                                        const std::vector<const Value*>& outputs,
                                        const std::vector<std::string>& output_names);

// Output 0 of the graph is the result, the others are gradients.
Result<SplitPasses> split_passes(const Graph& graph, Recompute recompute);

}  // namespace tessera::shard
