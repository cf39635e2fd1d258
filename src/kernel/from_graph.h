// The graph, whose rewriting is done, as kernels: composite ops written out, layouts chosen, nodes grouped (fused), each
// group a Compute from its nodes' bodies with a default schedule. What has no body becomes a host step.
#pragma once

#include "kernel/compute.h"
#include "kernel/machine.h"
#include "kernel/program.h"

namespace tessera {

struct LowerOptions {
    Machine machine;
    int threads = 1;         // that will run it: how finely work is cut
    bool fuse = true;        // false: a kernel for each node
    bool strict = false;     // one order of summation whatever the number of threads
};

Result<Program> from_graph(std::shared_ptr<const Graph> graph, const LowerOptions& options);

// The stages of one node's output as plain maps and reductions, every Reduce of the body in a stage of its own.
// (In stages.cpp; grouping joins several nodes' stages into one Compute.)

}  // namespace tessera
