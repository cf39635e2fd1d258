// Splits a plan into stages: a reduction that does not depend on every loop around it, or that is a contraction, is
// computed into a tensor of its own first, and read from there.
#pragma once

#include "graph/evaluate/strip/program.h"

namespace tessera::strip {

// Computes the plan's root into `out`, contiguous over the output's dimensions. False: an index was out of bounds.
Result<bool> run_in_stages(Plan& plan, Target out, Fault& fault);

}  // namespace tessera::strip
