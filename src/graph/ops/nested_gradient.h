// The gradients of ops that run nested graphs: what flows to their inputs, and to what those graphs read from around.
#pragma once

#include "graph/gradient/gradient.h"

namespace tessera {

// A scan runs again with the states of each step collected; a second one, over the same steps in the other order, has
// the gradient of its body for a body. Refused where steps are not along axis 0, or run for each row of a batch.
Gradients back_through_scan(const Backward& r);

// An if whose branches are the gradients of its branches.
Gradients back_through_if(const Backward& r);

}  // namespace tessera
