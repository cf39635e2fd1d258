#include "runtime/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace tessera {

MemoryPlan plan_memory(const std::vector<Block>& blocks) {
    std::vector<size_t> by_size(blocks.size());
    std::iota(by_size.begin(), by_size.end(), size_t{0});
    std::stable_sort(by_size.begin(), by_size.end(),
                     [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
    MemoryPlan plan;
    plan.offsets.resize(blocks.size());
    std::vector<size_t> placed;  // by offset
    for (size_t at : by_size) {
        const Block& block = blocks[at];
        const int64_t size = std::max(aligned(block.bytes), kBlockAlignment);
        int64_t end = 0, best = -1, best_gap = 0;
        for (size_t other : placed) {
            const Block& o = blocks[other];
            if (o.last < block.first || block.last < o.first) continue;
            const int64_t gap = plan.offsets[other] - end;
            if (gap >= size && (best < 0 || gap < best_gap)) {
                best = end;
                best_gap = gap;
            }
            end = std::max(end, plan.offsets[other] + std::max(aligned(o.bytes), kBlockAlignment));
        }
        plan.offsets[at] = best < 0 ? end : best;
        plan.bytes = std::max(plan.bytes, plan.offsets[at] + size);
        auto place = std::upper_bound(placed.begin(), placed.end(), at,
                                      [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; });
        placed.insert(place, at);
    }
    return plan;
}

}  // namespace tessera
