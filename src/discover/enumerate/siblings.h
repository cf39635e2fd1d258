// Rules with several outputs, from single ones: where every output of an op on some term equals a smaller term, and
// those share a variable, they may be computed together.
#pragma once

#include "discover/enumerate/prune.h"

namespace tessera {

struct Siblings {
    std::vector<TermNode> parts;  // what the outputs are equal to, in order
    TermNode operand;             // of the op whose outputs they are
    uint16_t op = 0;              // its template for the first output
    TermPair pair;                // what names it
};

// `irredundant` are the pairs of which one side may be a join of the parts.
std::vector<Siblings> find_siblings(Enumeration& terms, const std::vector<TermPair>& pairs,
                                    const std::vector<TermPair>& irredundant);

// As rules are written; empty where neither side has all variables of the other, or where both are the same text.
std::string rule_text(Enumeration& terms, const TermPair& pair);
std::string rule_text(Enumeration& terms, const Siblings& siblings);

}  // namespace tessera
