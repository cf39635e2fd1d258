// A file's whole text.
#pragma once

#include <string>

#include "base/error.h"

namespace tessera {

// E0101, with the hint where the file cannot be opened.
Result<std::string> read_text_file(const std::string& path, std::string_view hint);

}  // namespace tessera
