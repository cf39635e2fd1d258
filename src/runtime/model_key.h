// What a model computes, as text that two models share only if they are the same: the graph, and a hash of its weights.
#pragma once

#include "graph/graph.h"

namespace tessera {

// The model's file, producer and metadata do not affect the key. Releases pages of mapped weights after hashing
// them.
std::string model_key(const Graph& graph);

}  // namespace tessera
