// A graph in QDQ form as one that computes convolutions and matrix products with integers, and pools and bounds of
// bytes on bytes. What it leaves in floating point stays as it is.
#pragma once

#include "graph/graph.h"

namespace tessera {

// Changes the graph. The result of a convolution is round(float(sum + bias) * (x_scale * w_scale / y_scale)) +
// y_zero_point, as QLinearConv defines it: it may differ by one from floats that are rounded after each step.
Result<bool> integer_form(Graph& graph);

}  // namespace tessera
