// Models built in: nothing to download. Their weights come from a seed, the same bits on every machine.
#pragma once

#include <memory>

#include "graph/graph.h"

namespace tessera {

// Version 1.5 (the 3x3 convolution of a bottleneck carries the stride), f32[N,3,224,224] to 1000 logits.
Result<std::unique_ptr<Graph>> resnet50(uint64_t seed);

}  // namespace tessera
