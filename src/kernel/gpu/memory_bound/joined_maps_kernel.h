// Several maps of the same elements, such as an optimizer's updates, in one loop: a thread computes all results of a
// few neighbours. What a result is made of is read before the results that may lie in its place are written. Maps that
// read nothing of each other, as the updates of several parameters, have threads of their own in one launch.
#pragma once

#include "kernel/schedule/schedule.h"

namespace tessera {

// Nothing where the stages are something else, or not all sizes are constant.
std::optional<Lowered> joined_maps_kernel(const Compute& compute);

}  // namespace tessera
