// Few rows times a matrix that is contiguous along its columns: there is no reuse, so vectors of it are loaded straight
// into registers. The threads of a block split adjacent columns and k (strided), and reduce in shared memory.
#pragma once

#include "kernel/gpu/contraction_kernel.h"

namespace tessera {

constexpr int64_t kMostFewRows = 4;

// Of a contraction whose axes are rows, columns and one k. Empty where columns or k are not known, or no multiples of
// what threads take; `a` is the factor that has the rows.
std::optional<TiledKernel> row_kernel(const Schedule& s, const Stage& sum, const Stage& out, int a,
                                      const Machine& machine);

}  // namespace tessera
