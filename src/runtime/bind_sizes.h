// The sizes of a model's symbols, from the sizes of its inputs.
#pragma once

#include "graph/graph.h"

namespace tessera {

// A dimension of an input that is not a constant.
struct SizeSource {
    const Value* input;
    size_t position;  // among the graph's inputs
    int64_t axis;
    Expr size;
};
std::vector<SizeSource> size_sources(const Graph& graph);

// What each source is for these inputs, in order: all that runs with the same sizes have in common. Those of inputs
// that are not tensors are 0.
void read_sizes(const std::vector<SizeSource>& sources, const std::vector<Datum>& inputs, std::vector<int64_t>& into);

// The symbols for what read_sizes gave. A size that says what its one symbol is, such as 2*N, does so. E0405 where two
// sizes contradict each other, or a symbol's cannot be inferred.
Result<SymbolValues> bind_sizes(const std::vector<SizeSource>& sources, const std::vector<int64_t>& sizes);

}  // namespace tessera
