// The equations index(vars) == at, one for each dimension of an input, solved for the variables: output indices and
// reduction axes. What remains of the variables is summed over; what must hold for a solution to exist is a guard.
#pragma once

#include <vector>

#include "expr/expr.h"

namespace tessera {

struct IndexEquations {
    std::vector<ReduceAxis> vars;
    std::vector<Expr> index;
    std::vector<Expr> guards;  // bool
    Expr value;                // what is added under them
};

// Solves for every equation: permutations, offsets, strides (with a guard that the stride divides), digits of mixed
// radix (v*c + w with w < c), quotients and remainders by constants. False where an index is none of these.
bool invert(IndexEquations& e, const std::vector<Expr>& at, const std::vector<Expr>& shape);

}  // namespace tessera
