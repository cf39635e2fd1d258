// Windows of an image as rows of a matrix (im2col), where neighbouring windows are neighbours in memory and the
// elements of a window are not. A thread writes some of a window's elements, in vectors; neighbouring threads have
// neighbouring windows, whose elements they read side by side. Which tap an element is of is known at compile time.
#pragma once

#include "base/machine.h"
#include "kernel/schedule/schedule.h"

namespace tessera {

// Empty where it is no such map.
std::optional<Lowered> im2col_kernel(const Compute& compute, const Machine& machine);

}  // namespace tessera
