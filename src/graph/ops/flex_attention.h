// Attention whose scores and probabilities pass through graphs of the user's.
#pragma once

#include "graph/op_def.h"

namespace tessera {

OpDef flex_attention_op();

}  // namespace tessera
