// How much memory the values of a run take at the same time, at most: inputs, results and outputs, computed in the
// order of the nodes, each kept until its last use. Constants are not in it, and nothing is computed in place.
#pragma once

#include "graph/graph.h"

namespace tessera {

struct Peak {
    int64_t bytes = 0;
    bool complete = true;  // false where a value's size is not known
};

// Symbols that are not given are 1.
Peak peak_memory(const Graph& graph, const SymbolValues& symbols = {});

}  // namespace tessera
