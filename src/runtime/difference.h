// How far results are from what they should be.
#pragma once

#include "graph/tensor.h"

namespace tessera {

// The largest difference over the largest value, neighbours in bf16 not counted; infinite where one is a number and the
// other is not. `wide`, unless null: what they should be where nothing is rounded to 16 bits on the way. A result may
// be either, or lie between where they are not far apart: which of the roundings a kernel leaves out is its own affair.
double relative_difference(const Tensor& got, const Tensor& want, const Tensor* wide = nullptr);
// The largest of those between two lists of results; infinite where something other than a tensor is among them.
double relative_difference(const std::vector<Datum>& got, const std::vector<Datum>& want);

}  // namespace tessera
