// Whether the two sides of a claim are the same, as the reference evaluator sees them.
#pragma once

#include "base/random.h"
#include "discover/claim/claim.h"

namespace tessera {

enum class Truth { Differs, Agrees, Senseless };

// At random sizes of 0 to 7, with strides, pads and dilations of at most 3, on random numbers: fractions, whole numbers
// with zeros among them, numbers of one sign.
Truth evaluated(const Claim& claim, uint64_t seed, int rounds = 12);

}  // namespace tessera
