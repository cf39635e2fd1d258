// The matrices of Winograd's convolution of m outputs from a kernel of r: exact in f64 for the points given, which are
// m + r - 2, infinity besides.
#pragma once

#include "graph/tensor.h"

namespace tessera {

struct WinogradMatrices {
    Tensor at, g, bt;  // f64 [m, n], [n, r], [n, n]
};
WinogradMatrices winograd_matrices(int64_t m, int64_t r, const std::vector<double>& points);

// What the op winograd_weight gives of f32 weights [O, C, r, s] and f64 matrices [n, r] and [n', s], computed in f64
// and rounded to f32: [n, n', C, O].
Result<Tensor> winograd_weights(const Tensor& w, const Tensor& g_rows, const Tensor& g_columns);

}  // namespace tessera
