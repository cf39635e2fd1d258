// Few rows times a matrix that lies along its columns: nothing is used twice, so it comes straight to registers, in
// vectors. The threads of a block take neighbouring columns and every so many of k, and add up in shared memory.
#pragma once

#include "kernel/gpu/contraction_kernel.h"

namespace tessera {

constexpr int64_t kMostFewRows = 4;

// Of a contraction whose axes are rows, columns and one k. Empty where columns or k are not known, or no multiples of
// what threads take; `a` is the factor that has the rows.
std::optional<TiledKernel> row_kernel(const Schedule& s, const Stage& sum, const Stage& out, int a,
                                      const Machine& machine);

}  // namespace tessera
