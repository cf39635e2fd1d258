// One group of definitions as a Compute: bodies with what is inlined put in, loads by buffers. Names of stages, buffers,
// axes and symbols do not depend on the model's, so that equal groups give equal computes.
#pragma once

#include "kernel/compute.h"
#include "kernel/group_nodes.h"

namespace tessera {

// Where a definition that is kept lies: in a buffer whose dimension d is its axis order[d], from `offset` on.
struct Storage {
    int buffer = -1;                // of the program
    std::vector<int> order;         // empty: ONNX's
    std::vector<Expr> offset = {};  // by dimension of the buffer; empty: from its start
};

struct GroupCompute {
    Compute compute;
    std::vector<int> args;              // buffers of the program, one for each parameter
    std::vector<Expr> symbols;          // of the graph, by the compute's
    std::vector<const Node*> nodes;     // whose definitions it holds, inlined ones too
    std::vector<int> reads, writes;     // definitions outside of it, and its own that are kept
};

// `buffers` are the program's, with shapes and element types; a definition that is read or kept has its storage.
GroupCompute build_compute(const Definitions& all, const Grouping& grouping, int group,
                           const std::vector<Storage>& storage, const std::vector<ProgramBuffer>& buffers);

}  // namespace tessera
