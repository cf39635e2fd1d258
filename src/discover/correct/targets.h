// What of a graph can be mutated: products of two tensors (convolutions, products of matrices), each as a claim about
// itself with symbols for its sizes, so that what is proved of it serves all places that are alike.
#pragma once

#include "discover/claim/claim.h"
#include "graph/graph.h"

namespace tessera {

struct MutationTarget {
    Claim claim;                     // original => original
    SymbolValues sizes;              // of its symbols, at the first place
    std::vector<std::string> where;  // names of its nodes
    double work = 0;                 // elements of the output times those summed over, of all places together
};

// Of a product: elements of its output times those summed over; 0 where the node is none.
double product_work(const Node& node);

// Those of a graph whose sizes are numbers, the most work first; alike ones once.
std::vector<MutationTarget> find_targets(const Graph& graph);

}  // namespace tessera
