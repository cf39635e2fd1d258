// Running sums and products along rows by blocks of threads: a block takes a piece of a row, whose elements its threads
// add up in shared memory; what comes before the piece was added up by a launch before.
#pragma once

#include "kernel/written/write_kernel.h"

namespace tessera {

struct RowScan {
    Expr rows, n;
    DType dtype = DType::f32;  // that is added up
    bool product = false;
    bool exclusive = false;  // of what comes before an element
    std::function<Expr(const Expr& row, const Expr& i)> element = {};
    std::function<Stmt(const Expr& row, const Expr& i, const Expr& total)> keep = {};
};

// Rows of elements that lie side by side. Sums of floats are not in the order of elements.
Stmt scan_rows(KernelWriter& w, const RowScan& scan);

}  // namespace tessera
