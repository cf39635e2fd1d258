// The nodes of a graph in integer form (quantize/integer_form.h) that an accelerator computes, as layers.
#pragma once

#include "graph/graph.h"
#include "kernel/accelerator/compile/network.h"
#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

// A layer whose values are still those of the graph: input, a, b and output of `layer` are not set.
struct FoundLayer {
    Node* root;
    std::vector<Value*> inputs;  // one, or both of an addition
    std::vector<Activation> input_types;
    Value* output;
    Activation output_type;
    Layer layer;
};

// In the order of the graph. `why`: of each node that looked like a layer and is none, the reason.
struct FoundLayers {
    std::vector<FoundLayer> layers;
    std::vector<std::pair<const Node*, std::string>> why;
};
FoundLayers find_layers(const Graph& graph, const Machine& machine);

// Quantized convolutions as sums, whose scale, zero point and bounds are left to other nodes: for machines without a
// vector ALU.
Result<bool> leave_rescaling(Graph& graph);

// Layers of a graph that has no other nodes, over its inputs and outputs.
Result<Network> network_of(const Graph& graph, const Machine& machine);

}  // namespace tessera::accelerator
