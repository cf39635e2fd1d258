// What a rule must fulfil beyond its syntax: ops get as many inputs as they take and attributes they have, functions
// get what they take, a variable is one kind of thing. Fills in the terms' and variables' kinds and functions.
#pragma once

#include "graph/text/scanner.h"
#include "rewrite/rule.h"

namespace tessera {

Status check_rule(Rule& rule, const TextScanner& scan);  // E0303, at the term

// What may stand behind a variable: float, int, bool, number, or an element type.
bool is_constraint(std::string_view word);
bool satisfies(DType dtype, std::string_view constraint);

}  // namespace tessera
