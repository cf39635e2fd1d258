// Turns the linear map of a derivative around. It takes what each load of an input contributes for each output element,
// and gives what each element of the input receives: affine indices are inverted, so that an element gathers, or sums
// over the axes that are left; indices that depend on data, or that have no inverse here, are scattered to.
#pragma once

#include <optional>
#include <vector>

#include "graph/gradient/derive_body.h"

namespace tessera {

// What is added to the elements that indices say, for all values of `over` and of `whole`.
struct Scattered {
    std::vector<ReduceAxis> over;
    std::vector<size_t> dims;       // of the input, that are indexed
    std::vector<Expr> at;           // one for each of them
    std::vector<ReduceAxis> whole;  // the other dimensions, each at its own variable
    Expr value;
};

struct Transposed {
    std::optional<Expr> gathered;  // over `at`
    std::vector<Scattered> scattered;
};

// `outputs`: the axes of the output; `at` and `shape`: of the input.
Transposed transpose_body(const std::vector<Reached>& parts, const std::vector<ReduceAxis>& outputs,
                          const std::vector<Expr>& at, const std::vector<Expr>& shape);

}  // namespace tessera
