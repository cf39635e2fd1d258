// What steps of a plan make a rank receive.
#pragma once

#include "shard/plan.h"

namespace tessera::shard {

int64_t moved_elements(const Placement& from, const Placement& to);  // that a rank receives, at most
// Of a combination over groups of `ranks` ranks: to a part of `from`, or to all of it in two steps.
int64_t combined_elements(const Placement& from, const Placement& to, int64_t ranks);

}  // namespace tessera::shard
