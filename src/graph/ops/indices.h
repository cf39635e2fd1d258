// Bounds checks of whole index tensors.
#pragma once

#include "graph/tensor.h"

namespace tessera {

// Whether indices of i32 or i64 lie in [-extent, extent): those from `first` on with a distance of `step`.
bool all_indices_within(const Tensor& indices, int64_t extent, int64_t first = 0, int64_t step = 1);

}  // namespace tessera
