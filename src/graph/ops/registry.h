// Ops that a process adds to those that are built in.
#pragma once

#include "graph/op_def.h"

namespace tessera {

// find_op and find_onnx_op give it from then on; all_ops does not. E0204.
Status add_op(OpDef def);

}  // namespace tessera
