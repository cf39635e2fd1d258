// One group of definitions as a Compute: bodies with what is inlined put in, loads by buffers. Names of stages,
// buffers, axes and symbols do not depend on the model's, so that equal groups give equal computes.
#pragma once

#include "kernel/from_graph/place_buffers.h"
#include "kernel/ir/compute.h"

namespace tessera {

struct GroupCompute {
    Compute compute;
    std::vector<int> args;      // buffers of the program, one for each parameter
    std::vector<Expr> symbols;  // what each of the compute's is: one of the graph's, or a place in a joined definition
    std::vector<const Node*> nodes;   // whose definitions it holds, inlined ones too
    std::vector<int> reads, writes;   // definitions outside of it, and its own that are kept
    std::vector<Expr> read_elements;  // of each of `reads`, at most: fewer than it has where single ones are looked up
};

// A definition that is read or kept has its storage, in buffers that the program has.
GroupCompute build_compute(const Definitions& all, const Layouts& layouts, const Grouping& grouping, int group,
                           const std::vector<Storage>& storage, const std::vector<ProgramBuffer>& buffers);

}  // namespace tessera
