// The elements of a small tensor of whole numbers as kernels know them when only a run knows them: each is the
// difference of two symbols, one of which is 0, because symbols are never negative.
#pragma once

#include "graph/graph.h"

namespace tessera {

// Nothing where the elements are too many or their number is not known.
std::optional<std::vector<Expr>> run_contents(const Value& value);
void define_contents(const Value& value, const Tensor& tensor, SymbolValues& symbols);

}  // namespace tessera
