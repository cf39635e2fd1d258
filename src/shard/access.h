// What the elements of a node's output read, by the op's body: the iteration variables, each a factor that can be
// divided, and for any ranges of them the boxes of the inputs that are read.
#pragma once

#include "graph/graph.h"
#include "shard/sharding.h"

namespace tessera::shard {

struct Variable {
    Expr var;
    int64_t extent = 0;
    bool reduced = false;  // an axis of a reduction
};

struct Read {
    size_t slot = 0;
    std::vector<Expr> indices;
};

// One output of a node. Without a body it is computed whole, on every rank, from whole inputs.
struct Unit {
    const Node* node = nullptr;
    size_t output = 0;
    std::optional<Expr> body = {};
    std::string why_whole = {};            // where there is no body
    std::vector<Variable> variables = {};  // the output's indices, then the axes of reductions that may be divided
    std::vector<Read> reads = {};
    std::vector<Expr> reductions = {};  // that have these axes
    const Value* value() const { return node->output(output); }
};

// The units of a graph in the order of its nodes; those of nodes without a body have one for each node, output 0.
std::vector<Unit> units_of(const Graph& graph);

// The sizes of a value that can be divided: a tensor of numbers whose sizes are constants.
std::optional<Sizes> divisible_sizes(const Value& value);
int64_t bytes_of(const Value& value);  // of one that can be divided

using Ranges = std::vector<Interval>;  // one for each variable
Ranges whole_ranges(const Unit& unit);

// What a read needs of each dimension: the bounds of its indices, within the input.
Box needed(const Read& read, const Sizes& input, const std::vector<Variable>& variables, const Ranges& ranges);
std::vector<Read> reads_of(const Expr& body);

// The body with the variables counted from the beginning of their ranges.
Expr within(const Expr& body, const std::vector<Variable>& variables, const Ranges& ranges);

}  // namespace tessera::shard
