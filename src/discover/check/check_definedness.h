// Whether the right side of a claim is a number wherever the left side is. Equality of real numbers is half of a proof:
// x = x * y / y says nothing where y is 0. Decided apart from any certificate, for every value of the sizes.
#pragma once

#include <vector>

#include "discover/claim/claim.h"

namespace tessera {

// One element of a result of either side, at the indices _o0, _o1, ...; load(i, ...) reads the tensor variable number
// i.
struct ElementOfSides {
    Shape shape;
    Expr left, right;
};

// E0305 with what may be undefined; E0303 where the claim makes no sense.
Status check_definedness(const Claim& claim);
// Of a claim that was read.
Status check_definedness(const Claim& claim, const std::vector<ElementOfSides>& results);

}  // namespace tessera
