// Element-wise functions: exp, log, trigonometry, rounding.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> math_ops() { return {}; }

}  // namespace tessera
