// Sequences and optionals.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> sequence_ops() { return {}; }

}  // namespace tessera
