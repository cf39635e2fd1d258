// Proves a rule as it stands in a file: shapes and attributes are made up for its variables, of several ranks, as its
// ops and conditions demand, and each such claim is proved.
#pragma once

#include "discover/prove/prove.h"

namespace tessera {

struct RuleProof {
    bool proved = false;
    int claims = 0;      // that were proved
    std::string where;   // the shapes of the first, and for how many ranks
    std::string reason;  // why not
};
RuleProof prove_rule(const Rule& rule);

// Claims for graphs drawn at random that the rule matches, with sizes made symbols; at most `count`, all different.
std::vector<Claim> draw_claims(const Rule& rule, int count);

}  // namespace tessera
