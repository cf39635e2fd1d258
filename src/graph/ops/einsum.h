// Einsum: an equation over labelled dimensions, as one sum of products.
#pragma once

#include "graph/op_def.h"

namespace tessera {

OpDef einsum_op();

}  // namespace tessera
