// What ops mean in terms of simpler ones, for any rank, as equations between real numbers. As rules, so that the
// refuter can try them; the checker writes an op out by them.
#pragma once

#include <optional>

#include "rewrite/rule.h"

namespace tessera::checker {

const Rules& meanings();

// An op written out, where one of the meanings is of it with these operands and attributes.
std::optional<Term> meaning_of(const Term& op);

Term call_term(std::string name,
               std::vector<Term> args);  // of a function of the language
Term op_term(const char* name, std::vector<Term> args);

}  // namespace tessera::checker
