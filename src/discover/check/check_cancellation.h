// What a rule may lose by rounding. `reassociates` allows errors of the size of what the left side computes with: a sum
// on the right may not add and subtract terms that the left side does not form, since they cancel over the reals only.
#pragma once

#include "discover/check/check_definedness.h"

namespace tessera {

// E0305, with the terms.
Status check_cancellation(const Claim& claim, const std::vector<ElementOfSides>& roots);

}  // namespace tessera
