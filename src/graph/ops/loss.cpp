// Losses.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> loss_ops() { return {}; }

}  // namespace tessera
