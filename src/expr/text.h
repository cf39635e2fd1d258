// The text of expressions of every dtype, as kernels write them. A load has its buffer's name. A constant says its
// dtype (3_i32, 1.5_f64) unless that is i64 (3), bool (true) or f32 (1.5); a float has a point, an exponent, or is inf
// or nan.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "expr/expr.h"

namespace tessera {

std::string name_text(const std::string& name);  // bare where it can be, else in `backticks`

using SlotNames = std::function<std::string(int slot)>;
std::string to_string(const Expr& e, const SlotNames& buffers);

// What the names of a text mean where an expression stands in it.
struct ExprNames {
    std::function<std::optional<Expr>(const std::string& name)> variable;
    std::function<std::optional<std::pair<int, DType>>(const std::string& name)> buffer;  // its slot and element type
};
struct ExprText {
    std::optional<Expr> expr;
    size_t end = 0;  // where the next token begins; on failure, where the problem is
    std::string problem;
    bool undefined = false;  // the problem is a name that means nothing
};
ExprText parse_expr(std::string_view text, size_t at,
                    const ExprNames& names);  // as far as it goes; // comments skipped

std::optional<std::string> read_name(std::string_view text, size_t& at);  // what name_text gives; moves `at` behind it

}  // namespace tessera
