// Operands of 16-bit products as they lie in memory.
#pragma once

#include <optional>

#include "expr/expr.h"

namespace tessera {

// The element that an operand is, also where it is multiplied with a constant or rounded.
struct ScaledLoad {
    Expr load;
    double factor = 1;
};
std::optional<ScaledLoad> scaled_load(const Expr& operand);
// Whether tiles of such elements can be multiplied.
inline bool is_copied(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
constexpr int64_t kVectorElements = 8;  // of 16 bits, in a copy of 16 bytes

}  // namespace tessera
