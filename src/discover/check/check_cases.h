// A rule with inputs that may be absent, as rules in which each is given or is not. Laws speak of operands that there
// are: a rule holds where each of its cases does.
#pragma once

#include <vector>

#include "base/error.h"
#include "rewrite/rule.h"

namespace tessera::checker {

// Stands for an absent operand that precedes a present one.
bool is_absent(const Term& t);

// The cases that the conditions admit, present before absent. E0305 if there are too many.
Result<std::vector<Rule>> cases_of(const Rule& rule);

}  // namespace tessera::checker
