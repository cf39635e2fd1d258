// Ops whose output depends on an order or a count: top_k, unique, non_zero, non_max_suppression.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> sort_ops() { return {}; }

}  // namespace tessera
