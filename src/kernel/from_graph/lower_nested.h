// The graphs nested in host steps (a loop's body, the branches of an if) as programs of their own. What they use from
// around them comes as further inputs.
#pragma once

#include "kernel/from_graph/from_graph.h"

namespace tessera {

// Fills program.nested, with kernels of their own. Host steps whose op says how it runs its graphs become control
// steps, which the runtime executes; the evaluator executes others. Graphs that draw random numbers are left to the
// evaluator.
Status lower_nested(Program& program, const LowerOptions& options);

// All kernels of a program and of those nested in it in one list, which each of them has.
void share_kernels(Program& program);

}  // namespace tessera
