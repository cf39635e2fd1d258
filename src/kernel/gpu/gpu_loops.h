// Loops of kernels that are written out here.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

inline Expr loop_var(const std::string& name, const Expr& extent) { return index_var(name, extent.as_int()); }

inline Stmt loop_over(const Expr& var, const Expr& extent, LoopKind kind, Stmt body, std::string axis = {}) {
    For made{.var = var, .extent = extent, .kind = kind, .axis = std::move(axis), .body = std::move(body)};
    return for_loop(std::move(made));
}

}  // namespace tessera
