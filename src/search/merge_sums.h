// Associativity as a normal form: sums (and products, maxima, minima) of many operands are known by the classes that
// they are made of, sorted, so that all ways to write one are one class and no rule need enumerate them.
#pragma once

#include "search/egraph.h"

namespace tessera {

// Merges classes that are the same sum, written in another order; the number of merges. The e-graph is rebuilt. Without
// `floats`, only of whole numbers.
size_t merge_sums(EGraph& egraph, bool floats);

}  // namespace tessera
