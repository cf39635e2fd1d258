// Proves what was found, on all threads. With a work folder, verdicts are noted there as they come, and a run that was
// interrupted proves only what is left.
#pragma once

#include "discover/discover.h"

namespace tessera {

// Verdict, claim, certificate and conditions of each rule. E0410 where it was cancelled.
Status prove_found(const DiscoverOptions& options, const World& of, std::vector<FoundRule>& rules,
                   DiscoverCounts& counts);

// What was noted, once the whole discovery is done.
void forget_proofs(const DiscoverOptions& options, std::string_view world);

}  // namespace tessera
