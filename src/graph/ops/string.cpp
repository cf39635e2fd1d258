// Strings.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> string_ops() { return {}; }

}  // namespace tessera
