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

// Those of built_in_rule_files, whose certificates name no shapes.
Shipped hand_written_rules();

int campaign();            // TESSERA_CAMPAIGN, or 300
uint64_t campaign_seed();  // TESSERA_CAMPAIGN_SEED, or 0

}  // namespace tessera
