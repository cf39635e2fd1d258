// Many divisions by one number as one, and products.
#pragma once

#include "kernel/ir/compute.h"

namespace tessera {

// Quotients of many elements by what is one number for all of them are products with its reciprocal, rounded once more,
// where that is normal wherever the number is finite and none of zero: roots, and the sums of a softmax, which are at
// least 1.
Compute with_reciprocals(Compute compute);

}  // namespace tessera
