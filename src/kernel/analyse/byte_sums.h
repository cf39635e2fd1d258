// Sums of products of bytes: with zero points, as quantized models have them, and over words of four bytes, of which
// one instruction adds up all four products.
#pragma once

#include <optional>

#include "kernel/ir/compute.h"

namespace tessera {

// i32(byte) - zero.
struct Centered {
    Expr byte, zero;
};
std::optional<Centered> match_centered(const Expr& e);

// Does the stage make the words that another one sums over?
bool makes_words(const Compute& compute, const Stage& stage);

// Does the stage sum over words? Then what lies four elements apart for one and the next of them lies densely.
bool sums_words(const Stage& stage);

}  // namespace tessera
