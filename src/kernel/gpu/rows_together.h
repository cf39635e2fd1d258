// Blocks of one warp take several rows instead, each by a warp of its own: a multiprocessor runs few blocks at once.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

// The kernel as it was where its blocks are others.
void take_rows_together(Kernel& kernel);

}  // namespace tessera
