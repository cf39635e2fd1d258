// Groups as a program: storage for what is kept, a kernel for each group (equal ones are one), and steps in an order in
// which everything is computed before it is read.
#pragma once

#include "kernel/from_graph/build_compute.h"
#include "kernel/from_graph/from_graph.h"
#include "rewrite/passes/expand_composites.h"

namespace tessera {

Result<Program> build_program(const Expanded& expanded, const Definitions& all, const Layouts& layouts,
                              Grouping grouping, const LowerOptions& options);

}  // namespace tessera
