// Which values of a model that is trained in bf16 or f16 have that type, after PyTorch's autocast (docs/training.md).
#pragma once

#include <set>

#include "graph/builder.h"

namespace tessera {

// Products take operands of `narrow`, add up in f32, and their results keep the type; what is computed from these
// element by element, or only placed elsewhere, keeps it too. All other ops take f32, as all outputs of the graph.
// `weights`: inputs that are trained; like constants, they take the type of what they are computed with.
Status narrow_values(Graph& graph, DType narrow, const std::set<const Value*>& weights);

}  // namespace tessera
