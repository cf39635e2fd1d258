// How exact a rule is whose sides are equal as real numbers. By the checker's arithmetic, so that what a file says can
// be checked without the prover.
#pragma once

#include "discover/claim/claim.h"

namespace tessera {

// Exact where, for every output element, both sides do the same operations on the same elements, nothing is summed and
// no largest taken over an axis: data moves, and operands of sums and products change places, no more.
Exactness exactness_of(const Claim& claim);

}  // namespace tessera
