// The words of the text form, both ways: names, strings, elements of every type, bytes in base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/tensor.h"

namespace tessera {

std::string quote(std::string_view text);   // "a\nb"; bytes that are no UTF-8 as \xNN
bool is_name_text(std::string_view name);   // letters, digits, _ and .: may follow a % bare
bool is_plain_name(std::string_view name);  // needs no quotes: does not begin with a digit and is not a literal

// Element i, so that it reads back to the same bits. Numbers of float types have a point, an exponent, or are nan, inf;
// what those cannot say (payloads of NaNs) is written as the bits, 0x7fc00001.
std::string element_text(const Tensor& tensor, int64_t i);
std::string float_text(float value);

// A number as written; the tensor's elements must be of a numeric type, and the tensor fresh. False where the text is
// no such number or does not fit the type.
bool set_element(Tensor& tensor, int64_t i, std::string_view text);
std::optional<float> float_from_text(std::string_view text);
std::optional<int64_t> int_from_text(std::string_view text);

std::string base64(const void* data, size_t size);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tessera
