// Mutants of an original: an operand moved in index space, the op with other attributes, and its result moved back or
// sliced. All such programs are enumerated whose result has the original's shape; what agrees with it in most elements,
// in the field of 2^61 - 1 at small sizes, is a mutant. Results of one fingerprint are looked at once.
#pragma once

#include <atomic>

#include "base/deadline.h"
#include "discover/claim/claim.h"

namespace tessera {

struct MutantOptions {
    double least_agreement = 0.3;  // of the elements: small images have broad borders
    size_t most = 24;              // mutants
    // Enumeration stops then and returns what it has found so far.
    Deadline until = {};
    const std::atomic<bool>* cancel = nullptr;
};

struct MutantClaim {
    Claim claim;           // original => mutant: true at the sizes that were tried where the agreement is 1
    double agreement = 0;  // share of equal elements, the least over the sizes
};

struct MutantClaims {
    std::vector<MutantClaim> list;  // equal everywhere first, then by agreement
    int64_t terms = 0;              // evaluated
    bool complete = true;           // all were enumerated
};

// `original` is one op on variables, with shapes over symbols; a size that a factor divides is written so (2*H). E0303
// where it is no product of its operands, E0410 where it was cancelled.
Result<MutantClaims> find_mutants(const Claim& original, const MutantOptions& options = {});

}  // namespace tessera
