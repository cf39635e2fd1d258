// Convolutions of stride 1 with constant weights, where that is asked for or fewer multiplications pay for the transforms,
// written as products of transformed tiles (graph/ops/winograd.cpp). Each choice with its reason.
#pragma once

#include "base/decision.h"
#include "base/machine.h"
#include "graph/graph.h"

namespace tessera {

std::vector<Choice> choose_winograd(Graph& graph, const Machine& machine);

// The matrices of m outputs from a kernel of r: exact in f64 for the points given, which are m + r - 2, infinity
// besides.
struct WinogradMatrices {
    Tensor at, g, bt;  // f64 [m, n], [n, r], [n, n]
};
WinogradMatrices winograd_matrices(int64_t m, int64_t r, const std::vector<double>& points);

}  // namespace tessera
