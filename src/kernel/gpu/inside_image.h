// Conditions that ask whether a place lies inside of an image: those of padding.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

// Whether all that a condition asks for is that the places `at` lie inside of an image along these dimensions.
bool asks_for_inside(const Expr& condition, const std::vector<Expr>& at, const Buffer& image,
                     const std::vector<size_t>& dims);

}  // namespace tessera
