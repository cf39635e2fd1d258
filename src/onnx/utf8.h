// Is text UTF-8, and making it so. Names have to be; prose is mended.
#pragma once

#include <string>
#include <string_view>

namespace tessera::onnx {

bool is_utf8(std::string_view text);
std::string to_utf8(std::string_view text);  // each byte that does not belong becomes U+FFFD

}  // namespace tessera::onnx
