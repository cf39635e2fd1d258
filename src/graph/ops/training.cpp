// Optimiser steps of ai.onnx.preview.training.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> training_ops() { return {}; }

}  // namespace tessera
