// A copy of the graph in which ops without a body are the smaller graphs that they stand for, down to ops that have
// one, with constants folded. What cannot be written out is left: strings, control flow, sizes that depend on the data.
#pragma once

#include "graph/graph.h"

namespace tessera {

struct Expanded {
    std::shared_ptr<Graph> graph;
    // For nodes that were made: the op that they are a part of, and its name in the model.
    struct Origin {
        std::string op, name;
    };
    std::unordered_map<const Node*, Origin> origins = {};
};
Result<Expanded> expand_composites(const Graph& graph);

// A scan over a known number of steps becomes its steps, one after the other; false where it stays.
bool unroll_scan(Graph& graph, Node& node);

// A concat that begins with all that another one joins takes that one's result, so that both can be one piece of
// memory.
void nest_concats(Graph& graph);

}  // namespace tessera
