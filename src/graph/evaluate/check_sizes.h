// Sizes that only a run gives, held against what each node asks of its inputs: a model with symbolic dimensions promises
// that they fit, and what was compiled for any size relies on it.
#pragma once

#include "graph/graph.h"

namespace tessera {

// The error that the evaluator would give for the first node whose inputs do not fit each other with these sizes; E0411 where
// a size comes out different from what the graph says of it. Nodes that depend on sizes not among `symbols` pass.
Status check_sizes(const Graph& graph, const SymbolValues& symbols);

}  // namespace tessera
