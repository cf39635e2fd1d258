// Graphs to be lowered for their kernels' times only: a node on its own, and weights that nobody needs the values of.
#pragma once

#include "graph/graph.h"

namespace tessera {

inline constexpr const char* kNeighbour = "neighbour";  // the name of nodes that are not to be counted

// A graph of this node, with these sizes for its symbols; null where a size is not known. What has a window stands
// between two others, so that it can choose the layout of what it reads and writes as it would in a model.
std::shared_ptr<Graph> standalone(const Node& node, bool with_neighbours, const SymbolValues& symbols = {});

// Puts numbers that have nothing to do with it in the place of whatever large weights are computed from others, so that
// nobody need compute it.
void stand_in_weights(Graph& graph);

}  // namespace tessera
