// What a model declares of a value's type, held against what inference found.
#pragma once

#include <optional>
#include <string>

#include "graph/type.h"

namespace tessera {

// Inference's type, with the declared rank where it knows none and the declared size where it could only give the
// fresh symbol `<name>.d<i>`; nullopt where the two contradict (kinds, element types, ranks, constant sizes).
std::optional<Type> refine(const Type& inferred, const Type& declared, const std::string& name);

}  // namespace tessera
