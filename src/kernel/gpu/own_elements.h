// Elements in shared memory that one thread alone touches.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

// A buffer of a row of which each thread writes and reads the same elements everywhere, few and at constant places,
// gets a place for each thread first: so it stays in registers.
void own_elements(Kernel& kernel);

}  // namespace tessera
