// Maps whose elements cannot be read or written in vectors: paddings, slices and concatenations of odd sizes, gathers.
// A thread has several elements, a block apart: neighbouring threads have neighbours, and the loads of a thread are in
// flight together.
#pragma once

#include "base/machine.h"
#include "kernel/schedule/schedule.h"

namespace tessera {

// Empty where it is something else, or has so few elements that each has a thread of its own.
std::optional<Lowered> element_map_kernel(const Compute& compute, const Machine& machine);

}  // namespace tessera
