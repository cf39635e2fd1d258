// Inserts QuantizeLinear and DequantizeLinear nodes into a graph as a plan says.
#pragma once

#include "quantize/plan.h"

namespace tessera {

// What a layer's report takes from writing it.
struct WrittenLayer {
    const Node* node;
    double weight_snr = 0;
    int64_t weight_bytes = 0;
};

// Changes the graph that the plan is of. The quantized form of value "x" is "x_quantized", and "x_dequantized" after
// it.
Result<std::vector<WrittenLayer>> write_qdq(Graph& graph, const QuantizationPlan& plan, const Profile& profile,
                                            const QuantizeOptions& options);

}  // namespace tessera
