// Axes of a Compute that are read as several digits become several axes.
#pragma once

#include "kernel/ir/compute.h"

namespace tessera {

// An axis whose quotient and remainder by a constant are taken (groups of channels, heads, what a reshape merged)
// becomes two, in all stages that share it, so that indices are sums of axes.
void split_axes(Compute& compute);

// An axis of a result that a later stage reads by digits, as a depth-to-space does, becomes one axis for each digit.
void split_read_axes(Compute& compute);

}  // namespace tessera
