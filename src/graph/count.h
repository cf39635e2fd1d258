// What a node costs, read off its op's meaning: arithmetic on values, and the bytes it must move. Both are expressions
// over the graph's symbols. A multiply-add is two operations; index arithmetic, casts and the choice between an element
// and its padding are none.
#pragma once

#include <functional>

#include "graph/graph.h"

namespace tessera {

struct Cost {
    Expr flops = 0;        // adds, multiplications, divisions, comparisons of values, calls: one each
    Expr bytes = 0;        // of the inputs that are read, each once, and of the outputs
    bool complete = true;  // false where work is not counted: own evaluations, unknown ranks, how often a loop runs
};

Cost count(const Node& node);    // without its nested graphs
Cost count(const Graph& graph);  // all nodes, those of nested graphs too

// Each node of the graph and of its nested graphs, with its cost times how often its graph runs. Where that is not
// known (a condition decides) it counts once, and the node that has the graph is not complete.
void count_nodes(const Graph& graph, const std::function<void(const Node& node, const Cost& cost)>& each);

// The sum of many terms, without building every partial sum.
Expr sum_of(std::vector<Expr> terms);

}  // namespace tessera
