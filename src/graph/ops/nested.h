// Types of ops with nested graphs: a body's output type as seen from the enclosing graph.
#pragma once

#include "graph/graph.h"

namespace tessera {

std::string output_name(const OpView& op, size_t output);

// Sizes that only mean something inside (symbols of the body's inputs that the op's own inputs do not have) get fresh
// symbols of the op's output, numbered from `first`: as many dimensions will be stacked on top.
Type seen_outside(const OpView& op, const Graph& body, const Type& type, size_t output, size_t first = 0);

// The type of a loop-carried value, which is `initial` before the loop and `step` after each iteration.
Result<Type> carried_type(const OpView& op, const Type& initial, const Type& step, size_t output);

// `count` elements of that tensor type along a new axis; an unknown shape stays unknown.
Type stacked(const Type& element, const Dim& count, int64_t axis);

}  // namespace tessera
