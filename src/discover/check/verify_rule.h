// Checks a rule of a file against its certificate.
#pragma once

#include "discover/claim/certificate.h"

namespace tessera {

// Checks that the rule states exactly what the entry proves, and that the proof is valid. E0305.
Status verify_rule(const Rule& rule, const Certificates& certificates);

}  // namespace tessera
