// ZeRO as shardings: what each stage divides over the axes of the batch.
#pragma once

#include "shard/propagate.h"
#include "train/training_graph.h"

namespace tessera::shard {

inline constexpr int kMostZero = 3;

// The stage from which on a tensor is divided: optimizer state from 1, sums of gradients from 2, parameters from 3;
// running statistics never.
int zero_stage_of(const TrainedTensor& tensor, bool parameter);

// The axes over which the examples of a batch are divided. E0501 where there are none.
Result<std::vector<size_t>> batch_axes(const Graph& graph, const StepGraph& step, const Shardings& found);

// Divides a dimension over those of the axes that divide none: the largest one that divides evenly, or else the largest
// that has an element for each rank, or none.
void divide_further(Sharding& sharding, const Sizes& sizes, const std::vector<size_t>& axes, const Mesh& mesh);

}  // namespace tessera::shard
