// The graph passes that are code: analyses, not identities (those are rules). Each keeps inputs, outputs and meaning,
// works on nested graphs too, and leaves nodes sorted and nothing behind that only it made unused.
#pragma once

#include "rewrite/pass.h"

namespace tessera {

// Types and integer contents anew, where what feeds a node has become better known.
Result<Changed> refine_types(Graph& graph, PassContext& context);

// One way to write what can be written in several: explicit pads, axes counted from the front, no default attributes.
Result<Changed> canonicalise(Graph& graph, PassContext& context);

// A node whose inputs are constant is its value, and so is an integer whose symbolic contents are constant.
Result<Changed> fold_constants(Graph& graph, PassContext& context);

// Shape operands that only name sizes the op can find itself become constants: reshape to [0, -1, 64].
Result<Changed> fold_shapes(Graph& graph, PassContext& context);

// Equal integers computed in several ways are computed in the cheapest.
Result<Changed> share_sizes(Graph& graph, PassContext& context);

// Nodes that do the same, and constants with the same elements, are one.
Result<Changed> share_common(Graph& graph, PassContext& context);

// An if whose condition is constant is its branch; a loop that never runs is what it starts with.
Result<Changed> inline_branches(Graph& graph, PassContext& context);

// Nodes, optional outputs and constants that nobody uses go.
Result<Changed> drop_unused(Graph& graph, PassContext& context);

// Slices that cut a value into all of its parts along one axis are one split.
Result<Changed> slices_to_split(Graph& graph, PassContext& context);

// Ops that ONNX has not, or not in the model's opset, become the graphs that they stand for.
Result<Changed> write_out(Graph& graph, PassContext& context);

// Nodes and constants in an order, and generated names in a numbering, that follow from the graph alone.
Result<Changed> tidy(Graph& graph, PassContext& context);

}  // namespace tessera
