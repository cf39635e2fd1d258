// Whole slices of tensors moved about, whatever the element type: for evaluations that gather, join and stack.
#pragma once

#include "graph/tensor.h"

namespace tessera {

// `count` consecutive elements, in row-major order; both have one element type.
void copy_elements(const Tensor& from, int64_t from_at, Tensor& to, int64_t to_at, int64_t count);

// As Tensor::of, for as many elements as the data at hand asks for.
Result<Tensor> tensor_of_ints(Sizes sizes, const std::vector<int64_t>& values);

// The slices at these positions of the axis, in this order. Positions must be in range.
Result<Tensor> pick(const Tensor& t, int64_t axis, const std::vector<int64_t>& positions);
Result<Tensor> slice_of(const Tensor& t, int64_t axis, int64_t from, int64_t to);

// Without the axis.
Result<Tensor> take(const Tensor& t, int64_t axis, int64_t position);

// Joined along the axis; E0407 where element types or other sizes differ. At least one tensor.
Result<Tensor> concat_tensors(const std::vector<Tensor>& parts, int64_t axis);
// Joined along a new axis.
Result<Tensor> stack_tensors(const std::vector<Tensor>& parts, int64_t axis);

}  // namespace tessera
