// Touches compared point by point: where indices are digits of one number that are put in another order, no system of
// linear constraints shows that they differ.
#pragma once

#include "kernel/ir/touches.h"

namespace tessera {

// Whether no two different iterations of `at_once` touch one element, one by a and the other by b. False also where
// there are too many points, or ranges that are not known.
bool apart_point_by_point(const Touch& a, const Touch& b, const AtOnce& at_once, const Kernel& kernel);

}  // namespace tessera
