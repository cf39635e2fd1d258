// Names of values across nested graphs.
#pragma once

#include "graph/graph.h"

namespace tessera {

// A nested graph may have been built before a value around it got the same name: the outer one keeps it.
void separate_names(Graph& graph);

}  // namespace tessera
