// Decoding images: the formats that store their pixels uncompressed.
#pragma once

#include "graph/op_def.h"

namespace tessera {

OpDef image_decoder_op();

}  // namespace tessera
