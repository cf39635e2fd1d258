// The passes of lowering that are about numbers of few bits.
#pragma once

#include "rewrite/passes/lowering_passes.h"

namespace tessera {

// Products with constant weights of four bits are kernels that expand them in registers; elsewhere they are written
// out.
Result<Changed> keep_bits(Graph& graph, const Machine& machine, PassContext& context);

// What is computed from a quantized byte alone, element by element, up to another quantized byte, is a table of its 256
// values, as the evaluator gives them.
Result<Changed> tabulate_bytes(Graph& graph, PassContext& context);

}  // namespace tessera
