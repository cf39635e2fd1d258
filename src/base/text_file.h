// A file's whole text.
#pragma once

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"

namespace tessera {

// E0101, with the hint where the file cannot be opened; E0301 where it is no text.
inline Result<std::string> read_text_file(const std::string& path, std::string_view hint) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return Error(Code::E0101, "cannot open \"{}\": {}", path, std::strerror(errno)).hint("{}", hint);
    std::stringstream text;
    if (file.peek() != EOF) text << file.rdbuf();
    if (file.bad()) return Error(Code::E0101, "\"{}\" cannot be read", path).hint("name a file, not a folder");
    std::string all = text.str();
    if (all.find('\0') != std::string::npos) return Error(Code::E0301, "\"{}\" is a binary file, expected text", path);
    return all;
}

}  // namespace tessera
