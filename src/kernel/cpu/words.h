// Sums of products of bytes, four at a time: machines multiply the bytes of two words and add them up in one
// instruction, so that a product of bytes is one of words, with a fourth of the terms.
#pragma once

#include "base/machine.h"
#include "kernel/ir/compute.h"

namespace tessera {

// i32(byte) - zero.
struct Centered {
    Expr byte, zero;
};
std::optional<Centered> match_centered(const Expr& e);

// The sums over products (i32(a) - p) * (i32(b) - q) of bytes a and b as sums over words, where the machine has an
// instruction for them:
//   sum of a * b - p * (sum of b) - q * (sum of a) + k * p * q
// It is the same in 32 bits that wrap. The rest stays as it is.
Compute with_words(Compute compute, const Machine& machine);

// Does the stage make the words that another one sums over?
bool makes_words(const Compute& compute, const Stage& stage);

// Does the stage sum over words? Then what lies four elements apart for one and the next of them lies densely.
bool sums_words(const Stage& stage);

}  // namespace tessera
