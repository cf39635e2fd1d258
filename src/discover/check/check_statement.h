// What a claim says, as the checker reads it: one element of each result of either side, as an expression over the
// elements of the variables. Written apart from the prover's reading (comprehension.h); both take the meaning of an op
// from its inference and body.
#pragma once

#include <vector>

#include "discover/claim/claim.h"

namespace tessera::checker {

struct Statement {
    Shape shape;
    Expr left, right;  // at the indices _o0, _o1, ...; load(i, ...) reads the variable number i
};

// One for each result. E0303 where a side has no meaning, where they differ in type, or where sizes can be found for
// which inference takes the left side and not the right.
Result<std::vector<Statement>> statements_of(const Claim& claim);

}  // namespace tessera::checker
