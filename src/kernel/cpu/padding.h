// Windows that reach into the padding: they read a copy of the input with filled-in edges, so that no lane needs a
// padding test.
#pragma once

#include "base/machine.h"
#include "kernel/cpu/contraction_tiles.h"
#include "kernel/ir/compute.h"

namespace tessera {

// Each reduction that is vectorized along padded rows, as pooling and convolutions in small groups are, reads a padded
// copy, which a stage of its own makes. The rest stays as it is.
Compute with_padding(Compute compute, const Machine& machine);

// The bytes that the windows of one image and group cover, in the second operand of a product.
double bytes_of_windows(const Stage& stage, const Contraction& c);

// Is that more than the second cache holds, or far more where windows are dilated? Then it is better packed part by
// part than copied.
bool outgrows_cache(const Stage& stage, const Contraction& c, const Machine& machine);

// Are there lines between those that a window reads: does it go in steps of more than one along another axis than the
// last? A copy of all that it spans has them too.
bool skips_lines(const Stage& stage, const Expr& load);

// Does the stage make such a copy?
bool makes_padding(const Stage& stage);

// How many of the first axes of `reader`, which reads the copy `made`, can stand around it: no two of their iterations
// read the same elements of it.
size_t axes_around_padding(const Stage& reader, const Stage& made);

}  // namespace tessera
