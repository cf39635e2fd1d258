// Products with weights of four bits, which are expanded in registers on their way into the product.
#pragma once

#include "kernel/written/write_kernel.h"

namespace tessera {

Stmt write_block_product(KernelWriter& w);

}  // namespace tessera
