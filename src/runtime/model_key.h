// What a model computes, as text that two models share only if they are the same: the graph, and a hash of its weights.
#pragma once

#include "graph/graph.h"

namespace tessera {

// Where the model came from, who made it and what it says of itself are left out. Pages of mapped weights are let go
// of.
std::string model_key(const Graph& graph);

}  // namespace tessera
