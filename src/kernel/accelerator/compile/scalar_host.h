// What a layer would take on the host that stands beside an accelerator: an in-order core that issues one instruction
// a cycle and has no vectors. All that it reads is in its first-level cache, and its loops are unrolled so far that
// only the instructions of the innermost body count: this favours the host.
#pragma once

#include "kernel/accelerator/compile/network.h"

namespace tessera::accelerator {

// Cycles of the host for each element, at the accelerator's clock.
struct ScalarHost {
    int64_t multiply_accumulate = 4;  // two loads, a multiplication, an addition
    int64_t rescale = 8;              // bias, conversion, scale, rounding, zero point, two bounds, store
    int64_t maximum = 2;              // a load and a maximum
    int64_t store = 1;
    int64_t sum = 14;  // two loads, zero points, conversions and scales; sum; as rescale without the bias
};

int64_t scalar_cycles(const Layer& layer, const Network& network, const ScalarHost& host = {});

}  // namespace tessera::accelerator
