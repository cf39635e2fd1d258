// A mutant is a program that equals the original almost everywhere. Its correction computes the strips where it does
// not by the original, restricted to them; mutant and correction together are a claim like any other, and are proved.
#pragma once

#include "discover/correct/differences.h"

namespace tessera {

struct Corrected {
    Claim claim;                // original => mutant, corrected
    std::vector<Strip> strips;  // of the output that are recomputed; none where the mutant is equal everywhere
    Shape output;               // of both, over the claim's symbols
    Proof proof;                // for all sizes, with the certificate
    std::string refused;        // why there is no correction
    bool proved() const { return proof.proved(); }
};

constexpr int64_t kQuestions = 800;  // about sizes, that the proof of a mutant may ask

// `mutant` claims that the original (its left side, one root) equals the mutant. Sizes that are too small for the
// strips to be apart are left to the original: the claim then begins at a least size. E0303 where the mutant makes no
// sense.
Result<Corrected> correct(const Claim& mutant,
                          const ProveOptions& options = {.write_out = true, .max_questions = kQuestions});

// The mutant's claim with these strips recomputed by the original, whatever they are. E0303 where that cannot be
// written.
Result<Claim> with_strips_recomputed(const Claim& mutant, const std::vector<Strip>& strips);

}  // namespace tessera
