// Fourier transforms, windows, mel weights.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> signal_ops() { return {}; }

}  // namespace tessera
