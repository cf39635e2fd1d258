// The tiles of a contraction for a processor, from its sizes and how its operands lie.
#pragma once

#include "base/machine.h"
#include "kernel/analyse/contraction.h"
#include "kernel/analyse/stages.h"

namespace tessera {

// Sizes; an extent that is not constant is taken for large.
struct ContractionShape {
    int64_t batch = 1, m = 1, n = 1, k = 1;
    int64_t least_batch = 0;  // a plausible size of a dynamic batch; 0: the batch is constant
    bool rows_known = true;   // m is a constant
    bool m_known = true, n_known = true;
    bool packed_ahead = false;    // B is known before it runs
    bool a_along_depth = false;   // A is one load, contiguous along k: its elements can be read in place
    bool a_copied = false;        // A is read from a copy with filled edges, which has room for whole tiles
    bool b_copied = false;        // B is read from such a copy, along its columns
    bool b_along_columns = true;  // B is contiguous along its columns: its rows can be read in place
    int element_bytes = 4;
    bool transposes = true;    // packing A transposes it
    int64_t tile_rows = 0;     // of the register tile, where m is not known; 0: chosen
    bool same_sums = false;    // added up in the same order, whatever the number of threads
    bool words = false;        // of bytes, four in each element, as many as k says
    bool k_fills = false;      // k is one axis, which zeros can make longer
    int64_t tile_columns = 0;  // of the register tile, where n is not known; 0: chosen
};

struct ContractionTiles {
    int64_t mr = 1, nr = 1;        // the register tile; nr is a multiple of the vector's lanes
    int64_t kc = 1, k_blocks = 1;  // k in blocks of kc, kc * k_blocks >= k
    int64_t mc = 1, nc = 1;        // what one task computes: multiples of mr and nr
    int64_t tasks = 1;             // over batch, m and n
    bool parallel = false;
    bool pack_a = true, pack_b = true;
    bool a_ahead = false;    // A is packed before all tasks, rather than by each for itself
    bool b_in_task = false;  // B is packed by each task for itself
    bool prefetch = false;   // the next panel of B while one is used
    // All panels of B for one tile of rows, then for the next: C is written in the order that it lies in.
    bool along_rows = false;
    int64_t tile_words = 0;  // words that one instruction on whole tiles sums over (kWordsOfTiles); 0: there is none
    int64_t k_multiple = 1;  // that k is filled up to
    bool operator==(const ContractionTiles&) const = default;
};

ContractionTiles choose_tiles(const ContractionShape& shape, const Machine& machine, int threads);

// A register tile of some rows on the panels of B that `tiles` has, and what one costs for all columns and all of k.
struct RowTile {
    int64_t rows, cost;
};
// Those worth having where the number of rows is only known when it runs, and may be any of `sizes`: with fewest rows
// first, the tile of `tiles` last.
std::vector<RowTile> choose_row_tiles(const ContractionShape& shape, const ContractionTiles& tiles,
                                      const std::vector<int64_t>& sizes, const Machine& machine);

}  // namespace tessera
