// Proves a rule as it stands in a file. It is proved where it holds for one element, whatever the rank, or where its
// own conditions confine it to one claim, with symbols for sizes and attributes, and that claim is. Another rule for
// any rank or attribute is tried by cases: claims of several ranks, with attributes at their limits. That all of these
// hold is no proof of the rule, and is not called one.
#pragma once

#include "discover/prove/prove.h"

namespace tessera {

struct RuleProof {
    bool proved = false;    // with a certificate for all that its conditions admit
    bool by_cases = false;  // proved for all sizes of each sampled claim, and for no other claims
    int claims = 0;         // that were proved
    std::string where;      // the shapes of the first, and for how many ranks
    std::string reason;     // why not
    std::string entry;      // of a file of certificates, where it is proved for any rank
};
RuleProof prove_rule(const Rule& rule);
RuleProof prove_for_any_rank(const Rule& rule);  // element by element

// Claims for graphs drawn at random that the rule matches, with sizes made symbols; at most `count`, all different.
std::vector<Claim> draw_claims(const Rule& rule, int count);

}  // namespace tessera
