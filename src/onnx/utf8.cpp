#include "onnx/utf8.h"

#include <cstdint>

namespace tessera::onnx {
namespace {

// The length of the code point that text starts with; 0 when it starts with none.
size_t code_point_length(std::string_view text) {
    auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    uint8_t first = byte(0);
    if (first < 0x80) return 1;
    size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
    for (size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xC0) != 0x80) return 0;
    uint8_t second = byte(1);
    if (first == 0xE0 && second < 0xA0) return 0;  // could be shorter
    if (first == 0xED && second > 0x9F) return 0;  // a surrogate
    if (first == 0xF0 && second < 0x90) return 0;  // could be shorter
    if (first == 0xF4 && second > 0x8F) return 0;  // past U+10FFFF
    return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        size_t length = code_point_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string to_utf8(std::string_view text) {
    if (is_utf8(text)) return std::string(text);
    std::string mended;
    while (!text.empty()) {
        size_t length = code_point_length(text);
        if (length == 0)
            mended += "\xEF\xBF\xBD";
        else
            mended += text.substr(0, length);
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return mended;
}

}  // namespace tessera::onnx
