// Types of ops with nested graphs: a body's output type as seen from the enclosing graph.
#pragma once

#include "graph/graph.h"

namespace tessera {

std::string output_name(const OpView& op, size_t output);

// Sizes that only mean something inside (symbols of the body's inputs that the op's own inputs do not have, and sizes
// that its nodes find as they run) get fresh symbols of the op's output, numbered from `first`: as many dimensions will
// be stacked on top.
Type seen_outside(const OpView& op, const Graph& body, const Type& type, size_t output, size_t first = 0);

// Whether a symbol is a size that only a run finds (OpView::fresh), so that the elements of a sequence differ in it.
bool is_found_by_run(const std::string& symbol);
bool varies_in_sequence(const Type& element);
// The type of one element of a sequence, with symbols of its own for the sizes in which elements differ.
Type one_of_sequence(const OpView& op, const Type& element, size_t output);

// The type of a loop-carried value, which is `initial` before the loop and `step` after each iteration.
Result<Type> carried_type(const OpView& op, const Type& initial, const Type& step, size_t output);

// `count` elements of that tensor type along a new axis; an unknown shape stays unknown.
Type stacked(const Type& element, const Dim& count, int64_t axis);

}  // namespace tessera
