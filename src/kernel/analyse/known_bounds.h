// What is known of numbers, and cheaper for that: largest elements, sums of a softmax, roots.
#pragma once

#include "kernel/ir/compute.h"

namespace tessera {

// Quotients of many elements by what is one number for all of them are products with its reciprocal, rounded once more,
// where that is normal wherever the number is finite and none of zero: roots, and the sums of a softmax, which are at
// least 1.
Compute with_reciprocals(Compute compute);

// exp(x - m), m the largest x of its row, is exp(min(x - m, 0)): of what is not positive, a shorter one will do.
Compute with_bounded_exps(Compute compute);

}  // namespace tessera
