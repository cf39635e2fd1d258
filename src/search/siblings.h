// Rules with several outputs, from single ones: where every output of an op on some term equals a smaller term, and
// those share a variable, they may be computed together.
#pragma once

#include "search/prune.h"

namespace tessera {

struct Siblings {
    std::vector<TermNode> parts;  // what the outputs are equal to, in order
    std::vector<TermNode> whole;  // the outputs
    TermPair pair;                // the first two outputs: what names it
};

std::vector<Siblings> find_siblings(Enumeration& terms, const std::vector<TermPair>& pairs);

// As rules are written; empty where neither side has all variables of the other, or where both are the same text.
std::string rule_text(Enumeration& terms, const TermPair& pair);
std::string rule_text(Enumeration& terms, const Siblings& siblings);

}  // namespace tessera
