// Sizes for some of a graph's symbols, before it is rewritten: which of them decide how the graph goes on, and the
// graph with them given.
#pragma once

#include "graph/graph.h"

namespace tessera {

// The symbols that decide which branch is taken, or which rank a value has: with their sizes, an if can be replaced by
// its branch and what follows has a known rank. Where that shows further decisions, those are not among them.
std::vector<std::string> deciding_sizes(const Graph& graph);

// Replaces the symbols in all types, in the graphs nested in it too. What follows for results is left to inference.
void fix_sizes(Graph& graph, const SymbolValues& sizes);
void fix_sizes(Graph& graph, const Bindings& sizes);

}  // namespace tessera
