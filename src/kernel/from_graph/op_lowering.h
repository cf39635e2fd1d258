// How nodes of an op are lowered, as far as the op alone decides that: the one place that lowering, `tessera ops` and
// the tests ask.
#pragma once

#include "graph/op_def.h"

namespace tessera {

enum class OpLowering : uint8_t {
    Written,    // a kernel is written out for it (write_kernel.h)
    Body,       // kernels follow from its body
    Expansion,  // it stands for smaller ops
    Control,    // the runtime runs the programs of the graphs nested in it
    Host,       // the evaluator computes it
};
OpLowering op_lowering(const OpDef& op);

// Why an op of kind Host has no kernel.
std::string host_reason(const OpDef& op);

}  // namespace tessera
