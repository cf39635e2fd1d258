// Places in one piece of memory for blocks that live from one step to another, so that those that live at the same time
// do not overlap and the whole is small.
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory.h"

namespace tessera {

struct Block {
    int64_t bytes = 0;
    int first = 0, last = 0;  // steps, both inclusive
};

struct MemoryPlan {
    std::vector<int64_t> offsets;  // by block, multiples of kBlockAlignment
    int64_t bytes = 0;
};

// The largest first, each into the tightest gap between those that are alive with it, or after them.
MemoryPlan plan_memory(const std::vector<Block>& blocks);

}  // namespace tessera
