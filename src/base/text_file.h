// A file's whole text.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"

namespace tessera {

// E0101, with the hint where the file cannot be opened.
inline Result<std::string> read_text_file(const std::string& path, std::string_view hint) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return Error(Code::E0101, "cannot open \"{}\"", path).hint("{}", hint);
    std::stringstream text;
    if (file.peek() != EOF) text << file.rdbuf();
    if (file.bad()) return Error(Code::E0101, "\"{}\" cannot be read", path).hint("name a file, not a folder");
    return text.str();
}

}  // namespace tessera
