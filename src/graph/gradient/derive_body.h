// Takes a body, the scalar expression of one output element, and gives its derivative: for each place where it reads a
// wanted input, the expression of what reaches that element. This is linear in `seed`; transpose_body.h turns it
// around.
#pragma once

#include <functional>
#include <vector>

#include "expr/expr.h"

namespace tessera {

// One load of an input, and what reaches it from one output element, in the scope of the reductions around it.
struct Reached {
    Expr load;
    Expr adjoint;
    std::vector<ReduceAxis> axes;
};

// Conventions at points without a derivative are torch's (docs/gradients.md).
std::vector<Reached> derive_body(const Expr& body, const Expr& seed, const std::function<bool(int slot)>& wanted);

}  // namespace tessera
