// Models whose text leaves out what lies in memory already.
#pragma once

#include <map>
#include <string>

#include "tessera/model.h"

namespace tessera {

// A model from the text form; its inputs that `constants` names become constants with those elements.
Result<Model> parse_with_constants(std::string_view text, const std::map<std::string, Tensor>& constants);

}  // namespace tessera
