#include <algorithm>
#include <cmath>

#include "kernel/contraction.h"

namespace tessera {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Cycles that one step of k takes in a register tile of mr rows and `vectors` vectors of columns; infinite where the
// tile does not fit the registers.
double cycles_per_step(int64_t mr, int64_t vectors, int64_t lanes, const Machine& m) {
    int64_t accumulators = mr * vectors;
    int64_t a_registers = m.lane_multiply ? divide_up(mr, lanes) : m.load_broadcast ? 0 : 1;
    if (accumulators + a_registers + vectors > m.vector_registers - (m.load_broadcast ? 1 : 0)) return INFINITY;
    double multiply = double(accumulators) / m.fma_pipes;
    double loads = double((m.lane_multiply ? divide_up(mr, lanes) : mr) + vectors);
    // Each accumulator waits for its last sum. Loads and the loop itself never hide quite.
    return std::max({multiply, loads / 2, double(m.fma_latency)}) + 0.3 + 0.03 * loads;
}

// Whole tasks over `threads`: the time until the last is done, in tasks' time.
double rounds(int64_t tasks, int threads) { return double(divide_up(tasks, threads)); }

}  // namespace

ContractionTiles choose_tiles(const ContractionShape& s, const Machine& machine, int threads) {
    const int64_t lanes = std::max<int64_t>(1, machine.vector_bytes / s.element_bytes);
    const int64_t m = std::max<int64_t>(s.m, 1), n = std::max<int64_t>(s.n, 1), k = std::max<int64_t>(s.k, 1);
    ContractionTiles best;

    // The register tile with the least time over the whole, edges included: each tile also stores and starts.
    double least = INFINITY;
    for (int64_t vectors = 1; vectors <= 8; ++vectors) {
        for (int64_t mr = 1; mr <= 16; ++mr) {
            double step = cycles_per_step(mr, vectors, lanes, machine);
            if (std::isinf(step)) continue;
            int64_t nr = vectors * lanes;
            double tiles = double(divide_up(m, mr)) * double(divide_up(n, nr));
            double cost = tiles * (double(k) * step + double(mr * vectors) * 1.5 + 20);
            // Rows that are no multiple of the lanes load their A in pieces.
            if (machine.lane_multiply && mr % lanes) cost *= 1.02;
            if (cost < least * 0.999) least = cost, best.mr = mr, best.nr = nr;
        }
    }
    const int64_t mr = best.mr, nr = best.nr;

    // A panel of B that is read again for each tile of rows stays in the first cache; blocks of k of one size.
    const int64_t row_tiles = divide_up(m, mr), column_tiles = divide_up(n, nr);
    int64_t kc_most = std::max<int64_t>(std::min<int64_t>(256, machine.l1_bytes / 128),
                                        machine.l1_bytes * 3 / 8 / (nr * s.element_bytes));
    best.k_blocks = row_tiles == 1 || k <= kc_most * 5 / 4 ? 1 : divide_up(k, kc_most);
    best.kc = divide_up(k, best.k_blocks);
    best.pack_a = m > 1;
    if (m == 1 && !s.packed_ahead) {
        // B is read as it lies, a few rows at a time, and its products added up in the first cache.
        best.pack_b = false;
        best.kc = std::min<int64_t>(k, 8);
        best.k_blocks = divide_up(k, best.kc);
    }

    // Blocks of A fill half of the second cache; tasks divide evenly among the threads.
    int64_t mc_most = std::max<int64_t>(1, machine.l2_bytes / 2 / (best.kc * s.element_bytes) / mr);
    double work = 2.0 * double(s.batch) * double(m) * double(n) * double(k);
    best.parallel = threads > 1 && work > 400e3;
    int workers = best.parallel ? threads : 1;
    double best_time = INFINITY;
    const double tile_time = double(mr * nr) * double(k);
    // Packing a row of A costs about as much as multiplying it with so many columns.
    const double pack_time = 16.0 * double(mr) * double(k);
    int64_t most_row_blocks =
        std::max<int64_t>(divide_up(row_tiles, mc_most), std::min<int64_t>(row_tiles, 8 * workers));
    for (int64_t row_blocks = divide_up(row_tiles, mc_most); row_blocks <= most_row_blocks; ++row_blocks) {
        int64_t tile_rows = divide_up(row_tiles, row_blocks);
        for (int64_t column_blocks = 1; column_blocks <= std::min<int64_t>(column_tiles, 4 * workers);
             ++column_blocks) {
            int64_t tile_columns = divide_up(column_tiles, column_blocks);
            int64_t tasks = s.batch * divide_up(row_tiles, tile_rows) * divide_up(column_tiles, tile_columns);
            double task = double(tile_rows) * (double(tile_columns) * tile_time + pack_time) + 20e3;
            // B's panels come from far for each block of rows.
            task += double(tile_columns * nr) * double(k) * 2;
            const bool in_task = !s.packed_ahead && best.pack_b && divide_up(row_tiles, tile_rows) == 1;
            if (in_task) task += double(tile_columns * nr) * double(k) * 8;
            double time = rounds(tasks, workers) * task;
            if (!s.packed_ahead && best.pack_b && !in_task)
                time += 400e3 + double(s.batch * n) * double(k) * 8 / workers;
            if (time < best_time * 0.995) {
                best_time = time;
                best.mc = tile_rows * mr;
                best.nc = tile_columns * nr;
                best.tasks = tasks;
                best.b_in_task = in_task;
            }
        }
    }
    return best;
}

}  // namespace tessera
