// Corruptions of a rule, each a small slip that a person could make: operands swapped, a condition dropped, an op taken
// for its sibling, an axis off by one.
#pragma once

#include "rewrite/rule.h"

namespace tessera {

struct Mutant {
    std::string change;  // "drop condition rank(x) == 2"
    Rule rule;           // as it reads back: what the reader refuses is no mutant
};

// Corruptions that differ from the rule and from one another; not those that swap the operands of a commutative op, and
// not conditions that are about profit only.
std::vector<Mutant> mutants_of(const Rule& rule);

}  // namespace tessera
