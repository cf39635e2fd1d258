// Names of values across nested graphs, those that a graph made up itself (v0, v1, ...), and the symbols that inference
// named after such values (v0.d1).
#pragma once

#include "graph/graph.h"

namespace tessera {

// A nested graph may have been built before a value around it got the same name: the outer one keeps it.
void separate_names(Graph& graph);

std::optional<uint64_t> generated_number(std::string_view name);  // 12 of v12

// Numbers generated names from v0 on, in the order of the nodes; symbols follow the values they are named after.
void renumber_names(Graph& graph);

// The value of each of the model's outputs has the output's name where it can.
void name_outputs(Graph& graph);

}  // namespace tessera
