// The classical-learning ops of ai.onnx.ml.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> ml_ops() { return {}; }

}  // namespace tessera
