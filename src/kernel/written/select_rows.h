// The best of each row, in order, by blocks of threads: a block selects those of a piece in shared memory, by networks
// of comparisons; what pieces have left is selected from again or, where that is much, merged two by two.
#pragma once

#include "kernel/written/write_kernel.h"

namespace tessera {

struct RowSelection {
    Expr rows, n, k;  // the k best of n
    DType dtype = DType::f32;
    std::function<Expr(const Expr& row, const Expr& i)> element = {};
    std::function<Expr(const Expr& a, const Expr& b)> better = {};  // ties are resolved by position
    std::function<Stmt(const Expr& row, const Expr& rank, const Expr& value, const Expr& place)> give = {};
};

// k is 1 or more, or not known.
Stmt select_rows(KernelWriter& w, const RowSelection& selection);

}  // namespace tessera
