// Names of values across nested graphs, those that a graph made up itself (v0, v1, ...), and the symbols that inference
// named after such values (v0.d1).
#pragma once

#include "graph/graph.h"

namespace tessera {

// A nested graph may have been built before a value around it got the same name: the outer one keeps it.
void separate_names(Graph& graph);

bool generated_name(std::string_view name);

// Gives generated names new numbers, which no name had before in this graph's life, in the order of the nodes; symbols
// follow the values they are named after. `from_zero`: then numbers them from v0 on.
void renumber_names(Graph& graph, bool from_zero);

// The value of each of the model's outputs has the output's name where it can.
void name_outputs(Graph& graph);

}  // namespace tessera
