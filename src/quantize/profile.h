// Profiles: what calibration observes, how profiles merge, and their file format.
#pragma once

#include "base/error.h"
#include "graph/graph.h"
#include "tessera/quantize.h"

namespace tessera {

// A value to observe, and the axis of its channels if it is an input of a convolution or a matrix product.
struct Observed {
    const Value* value;
    std::optional<int64_t> channel_axis;
};

// The values that quantize() may ask for, of the graph itself (not of nested ones), in order.
std::vector<Observed> observed_values(const Graph& graph);

// The profile of one run's value. E0407 if it is not finite.
Result<ValueProfile> observe(const Tensor& value, const Observed& what, int64_t sample);

}  // namespace tessera
