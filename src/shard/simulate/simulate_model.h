// Runs of a model: partitioned by its annotations, each stage of a pipeline by a plan of its own.
#pragma once

#include "shard/simulate/mesh_roles.h"

namespace tessera::shard {

using MeasureSegment = std::function<Result<double>(const Segment& segment)>;  // seconds

// The graph's sizes are constants. `measured`: how long segments take; empty: they are estimated.
Result<Simulated> model_simulation(const Graph& graph, const SimulateOptions& options, const MeasureSegment& measured);

}  // namespace tessera::shard
