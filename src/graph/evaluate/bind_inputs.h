// Checks a user's inputs against the graph's declarations.
#pragma once

#include "graph/evaluate/evaluate.h"

namespace tessera {

// The graph's inputs in order: given or by default. E0401 to E0405 name the input, what it must be and what it is. With
// `contradiction`, the first size that contradicts another of the same name is said there, and is no error.
Result<std::vector<Datum>> bind_inputs(const Graph& graph, const Inputs& inputs,
                                       std::optional<Error>* contradiction = nullptr);

// E0701 names the first input that lies on a GPU other than this one.
Status check_places(const Inputs& inputs, int gpu = kNoGpu);

}  // namespace tessera
