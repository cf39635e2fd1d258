// Groups as a program: storage for what is kept, a kernel for each group (equal ones are one), and steps in an order in
// which everything is computed before it is read.
#pragma once

#include "kernel/build_compute.h"
#include "kernel/expand_composites.h"
#include "kernel/from_graph.h"

namespace tessera {

Result<Program> build_program(const Expanded& expanded, const Definitions& all, const Layouts& layouts,
                              Grouping grouping, const LowerOptions& options);

}  // namespace tessera
