// A rule as it stands in a file, held against the certificate that stands beside it.
#pragma once

#include "discover/claim/certificate.h"

namespace tessera {

// That the rule says what the entry is the proof of, no more, and that the proof holds. E0305.
Status verify_rule(const Rule& rule, const Certificates& certificates);

}  // namespace tessera
