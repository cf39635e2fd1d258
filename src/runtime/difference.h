// How far results are from what they should be.
#pragma once

#include "graph/tensor.h"

namespace tessera {

// The largest difference over the largest value, neighbours in bf16 not counted; infinite where one is a number and the
// other is not.
double relative_difference(const Tensor& got, const Tensor& want);
// The largest of those between two lists of results; infinite where something other than a tensor is among them.
double relative_difference(const std::vector<Datum>& got, const std::vector<Datum>& want);

}  // namespace tessera
