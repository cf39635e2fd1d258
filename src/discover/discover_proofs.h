// Proves the pairs that were found, on all threads. With a work folder, each verdict is recorded at once, and an
// interrupted run resumes with the remaining pairs.
#pragma once

#include "discover/discover.h"

namespace tessera {

// Verdict, claim, certificate and conditions of each rule. E0410 where it was cancelled.
Status prove_found(const DiscoverOptions& options, const World& of, std::vector<FoundRule>& rules,
                   DiscoverCounts& counts);

// What was noted, once the whole discovery is done.
void forget_proofs(const DiscoverOptions& options, std::string_view world);

}  // namespace tessera
