#include "base/block_tiles.h"

namespace tessera {
namespace {

constexpr int64_t kDepth = 16;        // of k at a time
constexpr int64_t kSmallTile = 2048;  // elements of a tile of which more of k is taken at a time
constexpr double kResident = 2;       // blocks that an SM runs at a time

// Products and what is read for them, for one step of k, in as many turns as it takes.
double cost_of(const BlockTile& tile, int64_t batch, int64_t m, int64_t n, double at_once) {
    const double x = double(tile.m) / kBlockSide, y = double(tile.n) / kBlockSide;
    const double blocks = double(batch) * double((m + tile.m - 1) / tile.m) * double((n + tile.n - 1) / tile.n);
    return (x * y + 2 * (x + y) + 2) * std::max(1.0, blocks / at_once);
}

double blocks_at_once(const Machine& machine) { return kResident * double(machine.cores); }

}  // namespace

BlockTile choose_block_tile(const Machine& machine, int64_t batch, int64_t m, int64_t n) {
    const double at_once = blocks_at_once(machine);
    BlockTile best;
    for (int64_t bm : {128, 64, 32, 16})
        for (int64_t bn : {128, 64, 32, 16}) {
            const BlockTile tile{bm, bn, bm * bn <= kSmallTile ? 2 * kDepth : kDepth};
            if (!best.m || cost_of(tile, batch, m, n, at_once) < cost_of(best, batch, m, n, at_once)) best = tile;
        }
    return best;
}

double product_seconds(const Machine& machine, int64_t batch, int64_t m, int64_t n, int64_t k) {
    // Large products reach the machine's rate, with as many of the largest tiles as run at a time.
    constexpr BlockTile kLargest{128, 128, kDepth};
    const double at_once = blocks_at_once(machine);
    const double rate = machine.flops * cost_of(kLargest, 1, kLargest.m, kLargest.n, at_once) /
                        (2 * at_once * double(kLargest.m * kLargest.n));  // of costs
    return double(k) * cost_of(choose_block_tile(machine, batch, m, n), batch, m, n, at_once) / rate;
}

}  // namespace tessera
