// Sums of products of two values, of which each depends on output dimensions that the other does not: any matrix
// product or convolution, whatever op it came from. Both are laid out as matrices, tile by tile, and multiplied.
#pragma once

#include <optional>

#include "graph/evaluate/strip/program.h"

namespace tessera::strip {

struct Contraction {
    int node;                                      // the reduction
    int left, right;                               // the factors
    std::vector<int> batch, rows, columns, inner;  // loop variables: in both, in left only, in right only, summed over
    bool exact;                                    // every product is exact in a double
};

// Whether the reduction is one that pays. May add nodes to the plan.
std::optional<Contraction> as_contraction(Plan& plan, int node);

// Computes it over all its variables; `box` gives the strides of the target.
Result<bool> run(const Plan& plan, const Contraction& c, const std::vector<BoxDim>& box, Target target, Fault& fault);

}  // namespace tessera::strip
