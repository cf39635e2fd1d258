// Nests for several kinds of sizes in one kernel, each behind a guard over the symbols.
#pragma once

#include "kernel/schedule/schedule.h"

namespace tessera {

struct Variant {
    Expr guard;  // over the Compute's symbols
    Lowered lowered;
};

// One kernel that does what the first variant does whose guard holds, or else `otherwise`. All are of one Compute and
// prepare the same.
Lowered join_variants(std::vector<Variant> variants, Lowered otherwise);

// A kernel that does first what one does and then what the other does. They have the same parameters, apart from
// scratch, and prepare nothing.
Lowered one_after_other(const Lowered& first, const Lowered& then);

// Whether both prepare the same weights in the same way.
bool prepare_alike(const Lowered& a, const Lowered& b);

}  // namespace tessera
