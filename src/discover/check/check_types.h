// In which types the sides of a rule compute. Equality of real numbers says nothing of overflow: what the left side
// computes in a wide type the right side may not compute in one that lacks its numbers.
#pragma once

#include <optional>

#include "base/error.h"
#include "rewrite/rule.h"

namespace tessera::checker {

// Whether every number of the one float type is one of the other.
bool keeps_every_number(DType from, DType to);

// What a cast casts to, where the rule names it.
std::optional<DType> cast_type(const Term& cast);

// E0305 with the op and its type.
Status check_types(const Rule& rule);

}  // namespace tessera::checker
