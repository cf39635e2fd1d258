// ONNX's numbers for element types, and ours: one table, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace tessera::onnx {

std::optional<DType> dtype_from_onnx(int32_t data_type);  // nothing for UNDEFINED, the 6-bit floats and unknown numbers
int32_t dtype_to_onnx(DType t);
std::string data_type_name(int32_t data_type);  // "FLOAT", "FLOAT6E2M3 (27)", "unknown type 99"

}  // namespace tessera::onnx
