// Recognizes padding conditions, which test whether an index is inside an image.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

// Whether a condition only tests that the indices `at` are inside an image along these dimensions.
bool asks_for_inside(const Expr& condition, const std::vector<Expr>& at, const Buffer& image,
                     const std::vector<size_t>& dims);

}  // namespace tessera
