// How a graph differs where it is trained: batch normalization takes the batch's statistics and updates the running
// ones, and dropout drops.
#pragma once

#include <functional>

#include "graph/builder.h"

namespace tessera {

// A batch normalization's running statistics, and what they are after the step.
struct RunningStatistic {
    Value* before;
    Value* after;
};

// Inputs of the graph's nodes that are running statistics.
std::vector<Value*> running_statistics(const Graph& graph);
Result<std::vector<RunningStatistic>> normalize_by_batch(Graph& graph);
// The other way: what was saved while it was trained, as it is used.
Status normalize_by_statistics(Graph& graph);

// Each dropout becomes a product with a mask that follows from `seed` (i64 scalar) and the element's place alone, so
// that the backward pass computes it again. False where there is none; then `seed` is not asked for.
Result<bool> drop_by_counter(Graph& graph, const std::function<Value*()>& seed);

// After differentiation: what a batch normalization and its gradient both compute of the batch is computed once.
Status write_out_batch_statistics(Graph& graph);

// Nodes that depend on `parameters` and whose derivative is that of their expansion are written out, so that the
// forward and the backward pass share what they compute.
Status write_out_for_gradients(Graph& graph, const std::vector<Value*>& parameters);

}  // namespace tessera
