// The layout of weights in one block of memory, which prepare_weights fills, a stored program maps and a bundle's file
// contains. Determined by the program alone.
#pragma once

#include "runtime/program_layout.h"

namespace tessera {

struct WeightPlaces {
    std::vector<int64_t> offsets;  // by root: multiples of 64; -1: not a weight that a run reads
    std::vector<int64_t> sizes;    // of those, in bytes
    int64_t bytes = 0;
};

Result<WeightPlaces> place_weights(const Program& program, const ProgramLayout& layout);

// Elements of a constant of the graph, up to which its text has them; checks of sizes may ask for them.
constexpr int64_t kStoredByValue = 512;

// Larger constants that no buffer holds and that the evaluator may ask for: those of nested graphs, and what these take
// from around them. In an order that follows from the program's text.
struct GraphConstant {
    Graph* graph;
    const Value* value;
};
std::vector<GraphConstant> graph_constants(const Program& program);

}  // namespace tessera
