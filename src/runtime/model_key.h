// What a model computes, as text that two models share only if they are the same: the graph, and a hash of its weights.
#pragma once

#include "graph/graph.h"

namespace tessera {

// The model's file, producer and metadata do not affect the key. Releases pages of mapped weights after hashing
// them.
std::string model_key(const Graph& graph);

// The same by samples of each weight, spread over it: little of a large file is read. Weights may differ elsewhere.
std::string sampled_key(const Graph& graph);

}  // namespace tessera
