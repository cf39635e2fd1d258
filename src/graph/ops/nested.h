// Types of ops with nested graphs: what the body says of an output, as it is seen from outside.
#pragma once

#include "graph/graph.h"

namespace tessera {

std::string output_name(const OpView& op, size_t output);

// Sizes that only mean something inside (symbols of the body's inputs that the op's own inputs do not have) get fresh
// symbols of the op's output, numbered from `first`: as many dimensions will be stacked on top.
Type seen_outside(const OpView& op, const Graph& body, const Type& type, size_t output, size_t first = 0);

// Of a value that goes in as `initial` and comes out of every step as `step`.
Result<Type> carried_type(const OpView& op, const Type& initial, const Type& step, size_t output);

// `count` elements of that tensor type along a new axis; an unknown shape stays unknown.
Type stacked(const Type& element, const Dim& count, int64_t axis);

}  // namespace tessera
