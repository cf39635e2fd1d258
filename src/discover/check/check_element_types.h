// The element types that the tensors of a rule may have, by what its ops take.
#pragma once

#include <map>
#include <string>

#include "rewrite/rule.h"

namespace tessera::checker {

DTypes admitted(std::string_view constraint);  // by x:float and the like

// The possible element types of each variable, by the ops' signatures and the rule's constraints.
std::map<std::string, DTypes> types_of(const Rule& rule);

// Those of a rule's variables by what the ops of its pattern take.
std::map<std::string, DTypes> types_matched(const Rule& rule);

// Those that a term's elements may have, with those of the variables.
DTypes types_of_term(const Term& t, std::map<std::string, DTypes> of);

}  // namespace tessera::checker
