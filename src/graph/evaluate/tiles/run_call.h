// Evaluates an op that runs a tile program.
#pragma once

#include "graph/evaluate/evaluate.h"
#include "graph/tile_call.h"

namespace tessera {

constexpr int64_t kMostInstances = INT32_MAX;  // of a grid

Result<std::vector<Datum>> run_call(const OpView& op, const TileCall& call, EvalContext& context);

}  // namespace tessera
