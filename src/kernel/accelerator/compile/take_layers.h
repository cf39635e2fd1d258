// Takes the layers out of a graph that an accelerator computes: each part of them that depends on no node of the host
// in between becomes one `offload` node, which is compiled to one program.
#pragma once

#include "kernel/accelerator/compile/compile_network.h"
#include "rewrite/pass.h"

namespace tessera::accelerator {

// Quantized layers are put into integer form first. A layer that fits no scratchpad, and a part without convolutions
// and products, stay on the host. context.choices: of each layer where it is computed, of each other node why not on
// the accelerator.
Result<Changed> take_layers(Graph& graph, const Machine& machine, const NetworkOptions& options, PassContext& context);

}  // namespace tessera::accelerator
