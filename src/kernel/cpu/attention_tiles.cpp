#include <algorithm>

#include "kernel/cpu/attention.h"

namespace tessera {
namespace {

int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

}  // namespace

AttentionTiles choose_attention_tiles(std::optional<int64_t> queries, std::optional<int64_t> keys, int64_t depth,
                                      int64_t columns, int64_t outer, int element_bytes, const Machine& machine,
                                      int threads) {
    AttentionTiles t;
    const int64_t lanes = std::max<int64_t>(1, machine.vector_bytes / element_bytes);
    // Rows come as the lanes of a register, or as elements of memory.
    t.rows = machine.lane_multiply ? lanes : machine.vector_registers >= 32 ? 8 : 4;
    const int64_t spare = machine.lane_multiply ? t.rows : 1;
    int64_t vectors = std::max<int64_t>(1, (machine.vector_registers - spare) / (t.rows + 1));
    vectors = std::min<int64_t>(vectors, 4);
    while (vectors > 1 && vectors * lanes > 32) --vectors;
    // Few queries fill few vectors.
    while (vectors > 1 && queries &&
           round_up(*queries, vectors * lanes) > round_up(*queries, (vectors - 1) * lanes) * 5 / 4)
        --vectors;
    t.queries = vectors * lanes;
    // A block of K and V fills half of the first cache.
    t.keys = machine.l1_bytes / 2 / ((depth + columns) * element_bytes);
    t.keys = std::clamp<int64_t>(t.keys, 32, 256) / t.rows * t.rows;
    if (keys) {
        const int64_t blocks =
            std::max<int64_t>(1, (*keys + t.keys / 2) / t.keys);  // the last a bit larger than a small one more
        t.keys = round_up((std::max<int64_t>(*keys, 1) + blocks - 1) / blocks, t.rows);
    }
    // Tasks that divide evenly among the threads; what each packs for itself is worth many queries.
    const int64_t tiles = queries ? (*queries + t.queries - 1) / t.queries : threads <= outer ? 64 : 16;
    const int64_t most = std::max<int64_t>(
        1, std::min<int64_t>(tiles, machine.l2_bytes / 2 / ((depth + columns) * element_bytes * t.queries)));
    double least = 0;
    for (int64_t n = 1; n <= most; ++n) {
        const int64_t tasks = outer * ((tiles + n - 1) / n), iterations = (tasks + threads - 1) / threads;
        const double time = double(iterations) * (double(n * t.queries) + 16);
        if (n == 1 || time <= least) least = time, t.block = n * t.queries;
    }
    return t;
}

}  // namespace tessera
