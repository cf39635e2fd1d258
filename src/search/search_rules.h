// The rules that a search uses unless it is given others: those that merge siblings, those of rules/search/ and
// rules/found/ that are on, and the clean-ups that make what they leave behind small.
#pragma once

#include "rewrite/rule.h"

namespace tessera {

const std::vector<RuleFile>& search_rule_files();  // rules/search/*.rules and rules/found/*.rules

std::vector<const Rule*> search_rules();
std::vector<const Rule*> corrected_rules();  // of corrected.rules, which a search with mutants uses too

}  // namespace tessera
