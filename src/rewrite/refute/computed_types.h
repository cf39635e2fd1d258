// In which float types a graph computes. Moving elements, choosing among them and widening them round nothing; a
// graph that only does such things is taken to compute in the types that it has.
#pragma once

#include "graph/graph.h"

namespace tessera {

struct ComputedTypes {
    double roundoff = 0;  // of the coarsest type: how much of a number its rounding may change
    double most = 0;      // the largest number of the type of the smallest range
    bool floats = false;  // there are any
};
ComputedTypes computed_types(const Graph& graph);

// Whether it has floats of 8 bits or less.
bool stores_floats(const Graph& graph);

// Whether the right side computes in a type of fewer digits or a smaller range than any that the left side computes in.
bool narrows(const ComputedTypes& left, const ComputedTypes& right);

}  // namespace tessera
