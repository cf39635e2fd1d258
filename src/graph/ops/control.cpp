// Control flow: if, loop, scan, sequence_map.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> control_ops() { return {}; }

}  // namespace tessera
