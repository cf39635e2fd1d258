// Resampling and images.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> image_ops() { return {}; }

}  // namespace tessera
