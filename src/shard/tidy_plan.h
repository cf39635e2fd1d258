// Collectives that a plan does not need: results that nobody reads, and pairs that are one.
#pragma once

#include "shard/plan.h"

namespace tessera::shard {

// Drops steps whose results nobody uses. A reduce-scatter whose only reader gathers all of it again becomes an
// all-reduce.
void tidy_plan(Plan& plan);

}  // namespace tessera::shard
