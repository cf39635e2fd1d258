// Models in text form whose weights are passed as tensors.
#pragma once

#include <map>
#include <string>

#include "tessera/model.h"

namespace tessera {

// Parses the text form. Each input named in `constants` becomes a constant with that value.
Result<Model> parse_with_constants(std::string_view text, const std::map<std::string, Tensor>& constants);

}  // namespace tessera
