// Strassen's product with known weights: rows, columns and depth are halved once or twice (`halvings`), and 7 products
// of tiles take the place of 8, or 49 of 64. Sums of A are made as it is packed, those of the weights ahead, and
// products are added up while they are in the L2 cache.
#pragma once

#include "kernel/cpu/contraction_tiles.h"
#include "kernel/cpu/default_schedule.h"

namespace tessera {

struct HalvedTiles {
    int64_t halvings = 1;
    int64_t mr = 1, nr = 1;  // the register tile
    int64_t part = 1;        // of the depth of a half, that is added up in registers
    int64_t rows = 1;        // what one task computes: blocks of 2^halvings tiles of rows
    int64_t columns = 1;     // and of columns
    int64_t copied = 0;      // elements of each row of A that are copied before they are transposed; 0: none
    int64_t tasks = 1;
    int64_t parts() const { return int64_t(1) << halvings; }
    int64_t products() const { return halvings == 1 ? 7 : 49; }
};

// Nothing where a half has no tiles.
std::optional<HalvedTiles> choose_halved_tiles(const ContractionShape& shape, int64_t halvings, const Machine& machine,
                                               int threads);

// Stages in the place of one that is a contraction: blocks[h, g, t, k, i] of A, whose tile t of rows has the halves h,
// and the depth g; factors a[p, t, k, i] and b[p, j, k, c]; products[p, t, j, i, c]; and the stage that was, now a map.
struct HalvedStages {
    Compute compute;
    std::string blocks, a, b, products;
};
HalvedStages halve_product(const Compute& compute, const std::string& stage, const Contraction& c,
                           const HalvedTiles& tiles);

// A schedule of the one product of `compute` with its Strassen levels. An error has the reason if there is none.
Result<Schedule> schedule_halved(const Compute& compute, const CpuScheduleOptions& options);

}  // namespace tessera
