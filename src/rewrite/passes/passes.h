// The graph passes written in C++: analyses, whereas identities are rules. Each preserves inputs, outputs and
// semantics, handles nested graphs, keeps nodes sorted, and erases nodes that become unused.
#pragma once

#include "rewrite/pass.h"

namespace tessera {

// Infers types and integer contents again if the types of a node's inputs have become more precise.
Result<Changed> refine_types(Graph& graph, PassContext& context);

// Normalizes attributes: explicit pads, non-negative axes, no default values.
Result<Changed> canonicalise(Graph& graph, PassContext& context);

// Replaces nodes with constant inputs, and integers with constant contents, by constants.
Result<Changed> fold_constants(Graph& graph, PassContext& context);

// Replaces computed shapes by constants if the op can recover the dynamic sizes itself: reshape to [0, -1, 64].
Result<Changed> fold_shapes(Graph& graph, PassContext& context);

// Replaces integers that are computed in several ways by the cheapest computation.
Result<Changed> share_sizes(Graph& graph, PassContext& context);

// Merges identical nodes (CSE) and equal constants.
Result<Changed> share_common(Graph& graph, PassContext& context);

// Inlines the branch of an if with a constant condition; replaces a loop without iterations by its initial states.
Result<Changed> inline_branches(Graph& graph, PassContext& context);

// Erases unused nodes, optional outputs and constants (DCE).
Result<Changed> drop_unused(Graph& graph, PassContext& context);

// Replaces slices that together cover a value along one axis by a split.
Result<Changed> slices_to_split(Graph& graph, PassContext& context);

// Expands ops that ONNX, or the model's opset, lacks.
Result<Changed> write_out(Graph& graph, PassContext& context);

// Orders nodes and constants, and numbers generated names, by the structure of the graph alone.
Result<Changed> tidy(Graph& graph, PassContext& context);

}  // namespace tessera
