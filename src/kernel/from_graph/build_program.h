// Groups as a program: storage for what is kept, a kernel for each group (equal ones are one), and steps in an order in
// which everything is computed before it is read.
#pragma once

#include "kernel/from_graph/build_compute.h"
#include "kernel/from_graph/from_graph.h"

namespace tessera {

// A graph after the passes of lowering, and what its nodes are parts of.
struct Expanded {
    std::shared_ptr<Graph> graph;
    std::unordered_map<const Node*, Origin> origins = {};
};

Result<Program> build_program(const Expanded& expanded, const Definitions& all, const Layouts& layouts,
                              Grouping grouping, const LowerOptions& options);

}  // namespace tessera
