// The rules of rules/found with their certificates, and how much of a campaign is to be run.
#pragma once

#include "discover/claim/certificate.h"
#include "discover/claim/claim.h"

namespace tessera {

struct Shipped {
    Rules rules;
    Certificates certificates;
    Claim claim(const Rule& rule) const;  // as its certificate says
};
Shipped shipped_rules();

int campaign();  // TESSERA_CAMPAIGN, or 300

}  // namespace tessera
