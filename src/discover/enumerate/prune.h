// What makes a pair of equal terms superfluous: another pair that is the same up to the names of variables, or of which
// it is an instance because both sides contain the same subgraph.
#pragma once

#include "discover/enumerate/enumerate.h"

namespace tessera {

// Of the pairs that differ only in the names of equally shaped variables, those that use the first names. At least one
// of each kind does.
bool names_in_order(Enumeration& terms, const TermPair& pair);

// A subterm, or a constant, stands on both sides, and both sides are still equal with any tensor in its place.
bool has_common_subgraph(Enumeration& terms, const TermPair& pair);

// The same for pairs that differ in the names of variables, in the order of commutative operands or in their sides.
Fingerprint canonical_form(Enumeration& terms, const TermPair& pair);

// Of a term whatever its variables are called.
uint64_t nameless_form(Enumeration& terms, const TermNode& node);

std::vector<int> variables_in(Enumeration& terms, const TermNode& node);  // numbers, in the order of first use

// Text in the rule language.
std::string to_string(Enumeration& terms, const TermNode& node);
std::string to_string(Enumeration& terms, uint16_t op, const TermNode& operand);  // a template on one operand
std::string to_string(Enumeration& terms, const TermPair& pair);

}  // namespace tessera
