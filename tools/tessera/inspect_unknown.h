// tessera inspect for a model with operators that are not known here: what the file itself says.
#pragma once

#include "command.h"

namespace tessera::cli {

// Whether a model could not be loaded for its operators alone, and is an ONNX file.
bool may_inspect_unknown(const Error& error, const std::string& path);
Status inspect_unknown(const std::string& path, const Error& why, bool json);

}  // namespace tessera::cli
