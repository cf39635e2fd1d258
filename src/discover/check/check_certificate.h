// Replays a certificate: an independent check of a proof, which shares with the prover the language of rules, the ops
// and their bodies, and nothing else. It has its own reading of a claim, its own terms and its own arithmetic.
#pragma once

#include "discover/claim/certificate.h"
#include "discover/claim/claim.h"

namespace tessera {

// E0305 with the invalid step; E0303 if the claim is ill-formed.
Status check_certificate(const Claim& claim, const Certificate& certificate);

}  // namespace tessera
