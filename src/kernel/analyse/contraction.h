// A stage that is a sum of products over two operands, as C[b,m,n] = sum over k of A[b,m,k] * B[b,k,n]: which of its
// axes are which.
#pragma once

#include <optional>

#include "kernel/ir/compute.h"

namespace tessera {

// Numbers of axes, in their order. Columns hold the innermost axis of the output.
struct Contraction {
    std::vector<int> batch, rows, columns;  // axes of the stage that both operands have, A alone, B alone
    std::vector<int> depth;                 // reduction axes, so ordered that A is read along the last
    int a = 0, b = 1;                       // which factor of the product is A
};

std::optional<Contraction> match_contraction(const Stage& stage);

Expr rows_of(const Stage& stage, const Contraction& c);
Expr extent_of(const std::vector<ReduceAxis>& axes, const std::vector<int>& which);  // of those axes together

}  // namespace tessera
