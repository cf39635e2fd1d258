// Sums of products of bytes, four at a time: machines multiply the bytes of two words and add them up in one
// instruction, so that a product of bytes is one of words, with a fourth of the terms.
#pragma once

#include "base/machine.h"
#include "kernel/analyse/byte_sums.h"

namespace tessera {

// The sums over products (i32(a) - p) * (i32(b) - q) of bytes a and b as sums over words, where the machine has an
// instruction for them:
//   sum of a * b - p * (sum of b) - q * (sum of a) + k * p * q
// It is the same in 32 bits that wrap. The rest stays as it is.
Compute with_words(Compute compute, const Machine& machine);

}  // namespace tessera
