// Interpolation along one axis as a sum over taps: which element each tap reads, and its weight.
#pragma once

#include "graph/op_view.h"

namespace tessera {

// Weights at a distance (f64) from an element: 1 - |d|, and Keys' cubic with parameter a; zero beyond 1 and 2.
Expr linear_weight(const Expr& distance);
Expr cubic_weight(const Expr& distance, double a);

// The taps around `position` (f64): a reduction axis, the element under it (perhaps out of bounds), the distance to it.
struct Taps {
    ReduceAxis axis;
    Expr element, distance;
};
Taps taps_around(const OpView& op, const Expr& position, int64_t count);  // count is even

}  // namespace tessera
