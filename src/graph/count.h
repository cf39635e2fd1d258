// What a node costs, read off its op's meaning: arithmetic on values, and the bytes it must move. Both are expressions
// over the graph's symbols. A multiply-add is two operations; index arithmetic, casts and the choice between an element
// and its padding are none.
#pragma once

#include "graph/graph.h"

namespace tessera {

struct Cost {
    Expr flops = 0;        // adds, multiplications, divisions, comparisons of values, calls: one each
    Expr bytes = 0;        // of the inputs that are read, each once, and of the outputs
    bool complete = true;  // false where work is not counted: own evaluations, unknown ranks, how often a loop runs
};

Cost count(const Node& node);    // without its nested graphs
Cost count(const Graph& graph);  // all nodes; those of a nested graph as if it ran once

// The sum of many terms, without building every partial sum.
Expr sum_of(std::vector<Expr> terms);

}  // namespace tessera
