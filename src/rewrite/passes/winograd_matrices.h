// The matrices of Winograd's convolution of m outputs from a kernel of r: exact in f64 for the points given, which are
// m + r - 2, infinity besides.
#pragma once

#include "graph/tensor.h"

namespace tessera {

struct WinogradMatrices {
    Tensor at, g, bt;  // f64 [m, n], [n, r], [n, n]
};
WinogradMatrices winograd_matrices(int64_t m, int64_t r, const std::vector<double>& points);

}  // namespace tessera
