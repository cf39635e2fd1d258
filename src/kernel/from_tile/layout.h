// How a tile lies with the threads of a block: which elements each has. All tiles of one shape lie alike, so that what
// is computed element by element needs nothing of other threads.
#pragma once

#include "kernel/from_tile/tiles.h"

namespace tessera::from_tile_detail {

constexpr int64_t kSkew = 8;  // elements behind each row of a tile in shared memory: rows begin in different banks
constexpr int64_t kGroupsOfWarp = 8, kPairsOfGroup = 4, kThreadsOfWarp = 32;

// Every number is a power of two.
struct TileLayout {
    std::vector<int64_t> shape;
    int64_t warps = 4;
    // Index along a dimension: (register * threads + thread) * lanes + lane; threads are numbered along `order`, the
    // dimension first whose neighbours are neighbours in memory.
    std::vector<size_t> order = {};
    std::vector<int64_t> lanes = {}, threads = {}, registers = {};
    // Or as matrix instructions leave their sums: 16 rows and 8 columns of a warp at a time, the warps `down` by
    // `across`.
    bool of_products = false;
    int64_t down = 1, across = 1;
    bool wide = false;  // of instructions of four warps: warps take rows 16 by 16 in turn, then columns
    // Or [rows] and [rows, 1], as rows of such a product, which has all of a row in one warp: the four threads that
    // share a row all have its element.
    bool of_rows = false;

    int64_t used() const;        // threads that have elements
    int64_t per_thread() const;  // elements
    // Of a thread's number, the bits that choose the place along an axis.
    std::vector<int> bits_of(size_t axis) const;
};

TileLayout spread_tile(const std::vector<int64_t>& shape, int64_t warps, int64_t most_lanes, size_t fastest);
// Where each warp has 16 rows and 16 columns at least; with `rows`, whole rows if that can be.
std::optional<TileLayout> product_layout(const std::vector<int64_t>& shape, int64_t warps, bool rows);
// For instructions of four warps: as many warps down as can be.
std::optional<TileLayout> wide_layout(const std::vector<int64_t>& shape, int64_t warps);
TileLayout row_layout(const TileLayout& product, bool with_column);

// One thread's elements, as loops run over them.
struct TilePlace {
    struct Loop {
        Expr var;
        int64_t extent = 1;
        size_t axis = 0;
        bool lane = false;
    };
    std::vector<int64_t> shape;
    int64_t warps = 4;
    Expr warp, group, pair;
    TileIndices at;
    Expr own = 0;                  // its number among the thread's
    std::optional<Expr> row = {};  // in a product with whole rows: the number of the row's element among the thread's
    bool of_rows = false;          // four threads have the same: only the first writes what others see
    std::vector<Loop> loops;       // outermost first
    std::optional<Expr> inside = {};
    // Other ways to name its elements, with their numbers.
    std::vector<std::pair<TileIndices, Expr>> also = {};

    Expr thread() const { return warp * Expr(kThreadsOfWarp) + group * Expr(kPairsOfGroup) + pair; }
    TileIndices of_thread(const Expr& element) const { return {warp, group, pair, element}; }
};
TilePlace place_in(const TileLayout& layout, int& names);
TilePlace threads_alone(int64_t warps, int& names);  // no tile

// Loops over threads around what each does.
Stmt in_threads(const TilePlace& place, Stmt body);
// Loops over a thread's elements.
Stmt elements_of(const TilePlace& place, Stmt body, bool vector);
constexpr int64_t kMostUnrolled = 128;  // elements of a thread

// Buffers that each thread only uses its own elements of go to the threads: [warp, 8, 4, element]. `places`: of loops
// over threads, by the name of the warp's variable. False where one of `wanted` cannot.
bool keep_with_threads(Kernel& kernel, const std::map<std::string, TilePlace>& places,
                       const std::map<std::vector<int64_t>, TileLayout>& layouts, const std::set<int>& wanted);
// Single elements that nothing but threads reads are computed by each thread for itself.
void compute_everywhere(Kernel& kernel, int64_t warps, int& names);

}  // namespace tessera::from_tile_detail
