// Replays a certificate: an independent check of a proof, which shares with the prover only what a claim means
// (comprehension.h). It has its own terms, its own arithmetic and its own reading of the steps.
#pragma once

#include "search/certificate.h"
#include "search/claim.h"

namespace tessera {

// E0305 with the step that does not hold; E0303 where the claim makes no sense.
Status check_certificate(const Claim& claim, const Certificate& certificate);

}  // namespace tessera
