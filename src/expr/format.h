// Lets fmt print an expression.
#pragma once

#include <fmt/format.h>

#include "expr/expr.h"

template <>
struct fmt::formatter<tessera::Expr> : fmt::formatter<std::string> {
    auto format(const tessera::Expr& e, fmt::format_context& ctx) const {
        return fmt::formatter<std::string>::format(tessera::to_string(e), ctx);
    }
};
