// The text of expressions of every dtype, as kernels write them. A load has its buffer's name. A constant says its dtype
// (3_i32, 1.5_f64) unless that is i64 (3), bool (true) or f32 (1.5); a float has a point, an exponent, or is inf or nan.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "expr/expr.h"

namespace tessera {

std::string name_text(const std::string& name);  // bare where it can be, else in `backticks`

using SlotNames = std::function<std::string(int slot)>;
std::string to_string(const Expr& e, const SlotNames& buffers);

}  // namespace tessera
