#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "kernel/cpu/contraction_tiles.h"
#include "kernel/ir/intrinsic.h"

namespace tessera {
namespace {

constexpr int64_t kRowsWorthPacking = 4;  // of A: fewer, and B is read as it lies
constexpr int64_t kUnpackedRows = 16;     // of such a B
constexpr int64_t kFewTiles = 32;         // of rows: with more, it does not matter that the first wait for a panel of B
constexpr int64_t kLongPanel = 6;         // first caches that a panel of B may fill before k is cut
constexpr int64_t kShortSum = 64;         // k, up to which writing C takes longest
constexpr int64_t kPanelOfSecond = 5;     // of the second cache, what such a panel may fill where it streams from there

// Times are in multiply-adds.
constexpr double kPackRow = 12, kPackB = 8;  // packing an element of A, of B
constexpr double kFetchA = 1, kFetchB = 5;   // fetching an element from far
constexpr double kFetchShared = 5;           // one of A, that other cores wrote, once
constexpr double kSharedA = 4;               // second caches that such an A may fill
constexpr double kWorthWaiting = 0.02;       // of a task's time, that packing A ahead has to save
constexpr double kPackedOfSecond = 0.4;      // of the second cache, what of B is packed at once
constexpr double kStart = 20e3;

constexpr double kWorthTrying = 1.2, kFewRowsWorthTrying = 2.5;  // times the best register tile of one thread
constexpr double kWorthChanging = 1.06;               // gains below are less than what these times are off by
constexpr int64_t kWayBytes = 4 << 10, kFewWays = 8;  // of the first cache

constexpr double kFarBytesPerCycle = 12;              // from memory, to one core
constexpr double kRowOfTile = 0.35;                   // cycles for each row and step of k that nothing hides
constexpr int64_t kMostRows = 16;                     // of a register tile
constexpr int kMostRowTiles = 2;                      // besides the one for many rows
constexpr int64_t kSmallB = 2 << 10;                  // elements, of which few rows take no time worth more code
constexpr double kFastEnough = 1.15;                  // times the best there is, for any size
constexpr double kMatrixStep = 7, kMatrixTile = 200;  // cycles of a matrix tile for each step of k, and beside

// Cycles that one step of k takes in a register tile of mr rows and `vectors` vectors of columns; infinite where the
// tile does not fit the registers.
double cycles_per_step(int64_t mr, int64_t vectors, int64_t lanes, const ContractionShape& s, const Machine& m) {
    int64_t accumulators = mr * vectors;
    int64_t a_registers = m.lane_multiply ? divide_up(mr, lanes) : m.load_broadcast ? 0 : 1;
    if (accumulators + a_registers + vectors > m.vector_registers - (m.load_broadcast ? 1 : 0)) return INFINITY;
    double multiply = double(accumulators) / m.fma_pipes;
    double loads = double((m.lane_multiply ? divide_up(mr, lanes) : mr) + vectors);
    // Each accumulator waits for its last sum. Loads, panels that come from the second cache, and the loop itself never
    // hide quite.
    const double bytes = double(mr + vectors * lanes) * s.element_bytes;
    // Rows of A that lie apart are a stream each; lanes come from registers that were just loaded.
    double fetch = 0.02 * loads + 0.004 * bytes;
    if (m.load_broadcast)
        fetch += 0.04 * loads + 0.002 * bytes + double(mr) * (s.k * s.element_bytes > 512 ? 0.14 : 0.05);
    if (m.lane_multiply) fetch += 0.03 * loads + 0.04 * double(a_registers);
    return std::max({multiply, loads / 2, 1.25 * m.fma_latency}) + 0.1 + fetch;
}

struct RegisterTile {
    int64_t mr = 1, nr = 1;
    bool pack_a = true;
    double cost = 0;  // cycles of one thread over the whole, edges included: each tile also stores and starts
};

void add_register_tiles(const ContractionShape& s, const Machine& machine, int64_t lanes, bool pack_a, bool pack_b,
                        std::vector<RegisterTile>& list) {
    if (!s.n_known) {
        // Some columns as well as many: the share of the last tile that is empty counts.
        const size_t first = list.size();
        for (int64_t n : {28, 80, 200, 1024}) {
            ContractionShape some = s;
            some.n = n;
            some.n_known = true;
            std::vector<RegisterTile> tiles;
            add_register_tiles(some, machine, lanes, pack_a, pack_b, tiles);
            list.resize(first + tiles.size());
            for (size_t i = 0; i < tiles.size(); ++i) {
                const double before = list[first + i].cost;
                list[first + i] = tiles[i];
                list[first + i].cost = before + tiles[i].cost * double(s.n) / double(4 * n);
            }
        }
        return;
    }
    for (int64_t vectors = 1; vectors <= 8; ++vectors) {
        const int64_t nr = vectors * lanes;
        for (int64_t mr = 1; mr <= kMostRows; ++mr) {
            // What is read where it lies has no rows to fill the last tile with: that is another loop.
            const bool fills = s.a_copied || (pack_b && machine.load_broadcast && s.n <= nr);
            if (!pack_a && !fills && s.m % mr) continue;
            double step = cycles_per_step(mr, vectors, lanes, s, machine);
            if (std::isinf(step)) continue;
            double tiles = double(divide_up(s.m, mr)) * double(divide_up(s.n, nr));
            double cost = tiles * (double(s.k) * step + double(mr * vectors) * 1.5 + 20);
            // Rows that are no multiple of the lanes load their A in pieces.
            if (pack_a && machine.lane_multiply && mr % lanes) cost *= 1.04;
            // Elements of A one by one, each in a row of its own.
            if (!pack_a && s.m > 1) cost *= machine.lane_multiply ? 1.25 : 1.05;
            // The last columns of a B that is read as it lies are computed one by one.
            if (!pack_b && !s.b_copied && s.n % nr) cost *= 1 + 4 * double(s.n % nr) / double(s.n);
            list.push_back({mr, nr, pack_a, cost});
        }
    }
}

// The one with the least time, of those from `first` on.
const RegisterTile& fastest(const std::vector<RegisterTile>& list, size_t first = 0) {
    const RegisterTile* best = &list[first];
    for (size_t i = first + 1; i < list.size(); ++i)
        if (list[i].cost < best->cost * 0.999) best = &list[i];
    return *best;
}

// Rows that are read where they lie, and more of them in one place of the first cache than it has ways?
bool rows_collide(const ContractionShape& s, int64_t mr) {
    const int64_t apart = kWayBytes / std::gcd(s.k * s.element_bytes, kWayBytes);
    return divide_up(mr, apart) > kFewWays;
}

// AVX-512 reads panels so fast that what comes from behind the second cache holds it up: a block of A stays there with
// two panels of B, the one in use and the next, which is prefetched. Sums of several blocks of k would fill it as well.
bool keeps_a_near(const Machine& machine, const ContractionTiles& t) {
    return machine.load_broadcast && t.pack_a && t.pack_b && t.k_blocks == 1;
}

bool is_open(const ContractionShape& s) { return !s.m_known || !s.n_known || s.least_batch > 0; }

// The time of all tasks of so many tiles of rows and columns each, until the last is done. `slowness` is what a
// multiply-add takes beside the best tile of one thread, 0 where tiles are not compared; then A is never packed ahead.
double time_of_tasks(const ContractionShape& s, const Machine& machine, int workers, ContractionTiles& t,
                     double slowness, int64_t rows, int64_t columns) {
    const int64_t row_tiles = divide_up(s.m, t.mr), column_tiles = divide_up(s.n, t.nr);
    const int64_t parts = divide_up(column_tiles, columns), tasks = s.batch * divide_up(row_tiles, rows) * parts;
    rows = std::min(rows, row_tiles);
    columns = std::min(columns, column_tiles);
    const double b = double(columns * t.nr * s.k), a = double(rows * t.mr * s.k);
    const double c = double(rows * t.mr) * double(columns * t.nr);
    double task = kStart + c * double(s.k) * (slowness > 0 ? slowness : 1) + kFetchB * b;
    double once = 0;
    t.a_ahead = false;
    if (t.pack_a) {
        const double iterations = double(divide_up(tasks, workers)), all = double(s.batch * row_tiles * t.mr * s.k);
        const int64_t pieces = s.batch * (machine.lane_multiply ? row_tiles : s.m);
        const double ahead = double(machine.barrier) + kPackRow * all / double(std::min<int64_t>(workers, pieces));
        t.a_ahead = slowness > 0 && parts > 1 && all * s.element_bytes <= kSharedA * double(machine.l2_bytes) &&
                    ahead + iterations * kFetchShared * a < iterations * (kPackRow * a - kWorthWaiting * task);
        task += (t.a_ahead ? kFetchShared : kPackRow) * a;
        if (t.a_ahead) once += ahead;
    } else if (slowness > 0) {
        task += kFetchShared * a;
    }
    // What of A does not stay in the second cache beside a panel of B comes from far for each tile of columns.
    const double block = double(rows * t.mr * t.kc) * s.element_bytes, panel = double(t.kc * t.nr) * s.element_bytes;
    const double over = std::clamp((block + panel - 0.9 * double(machine.l2_bytes)) / block, 0.0, 1.0);
    task += over * kFetchA * a * double(columns);
    // Parts of lines of C meet in the second cache, or else in memory.
    const bool whole = columns >= column_tiles || columns * t.nr * s.element_bytes % 64 == 0;
    const bool meets = whole && (c + double(rows * t.mr * t.kc)) * s.element_bytes < double(machine.l2_bytes);
    task += c * (meets ? 2 : 16);
    if (t.pack_b && !s.packed_ahead) {
        // What is packed comes back from far, unless the second cache has room for it.
        const double held = double(rows >= row_tiles ? columns * t.nr * t.kc : s.batch * s.n * s.k) * s.element_bytes;
        const double each = held > kPackedOfSecond * double(machine.l2_bytes) ? kPackB + 2 * kFetchB : kPackB;
        if (rows >= row_tiles)
            task += each * b;
        else
            once += double(machine.barrier) + each * double(s.batch * s.n * s.k) / workers;
    }
    // Where sizes are not known, tasks divide evenly by chance only.
    const double last = double(tasks) / workers + 1 - 1.0 / workers;
    return once + (is_open(s) && workers > 1 ? last : double(divide_up(tasks, workers))) * task;
}

// What one task computes, so that tasks divide evenly among the threads; sizes that are not known are tried small and
// large. Gives the time.
double choose_tasks(const ContractionShape& s, const Machine& machine, int workers, double slowness,
                    ContractionTiles& best) {
    const int64_t row_tiles = divide_up(s.m, best.mr), column_tiles = divide_up(s.n, best.nr);
    // A block of A lies in the second cache, beside the panels of B that pass.
    const int64_t panels = 2 * best.nr * best.kc * s.element_bytes;
    const int64_t beside = std::max(machine.l2_bytes * 3 / 4 - panels, machine.l2_bytes / 4);
    const int64_t room = keeps_a_near(machine, best) ? beside : machine.l2_bytes * 2;
    const int64_t most = std::max<int64_t>(1, room / (best.kc * s.element_bytes) / best.mr);
    std::vector<ContractionShape> shapes{s};
    if (!s.m_known || !s.n_known) {
        shapes.clear();
        for (int64_t size : {24, 96, 384, 1536}) {
            shapes.push_back(s);
            if (!s.m_known) shapes.back().m = s.tile_rows ? s.tile_rows * size / 24 : size;
            if (!s.n_known) shapes.back().n = size;
        }
    }
    // A batch of one leaves the threads nothing but rows and columns.
    if (s.least_batch > 0 && workers > 1)
        for (size_t i = 0, count = shapes.size(); i < count; ++i) {
            shapes.push_back(shapes[i]);
            shapes.back().batch = s.least_batch;
        }
    const double packed = best.pack_b && !s.packed_ahead ? double(s.n * best.kc) * s.element_bytes : 0;
    const int64_t for_cache = int64_t(packed / (kPackedOfSecond / 2 * double(machine.l2_bytes)));
    const int64_t most_parts = std::max<int64_t>(4 * workers, for_cache);
    double least = INFINITY;
    int64_t last = 0;
    ContractionTiles t = best;
    for (int64_t blocks = divide_up(row_tiles, most); blocks <= row_tiles; blocks += 1 + blocks / 16) {
        const int64_t rows = divide_up(row_tiles, blocks);
        if (rows == last) continue;
        last = rows;
        for (int64_t parts = 1; parts <= std::min(column_tiles, most_parts); parts += 1 + parts / 16) {
            const int64_t columns = divide_up(column_tiles, parts);
            double time = 0;
            for (const ContractionShape& shape : shapes)
                time += time_of_tasks(shape, machine, workers, t, slowness, rows, columns) /
                        (double(shape.batch * shape.m) * double(shape.n));
            if (time >= least * 0.995) continue;
            least = time;
            best = t;
            best.mc = rows * best.mr;
            best.nc = columns * best.nr;
            best.tasks = s.batch * divide_up(row_tiles, rows) * divide_up(column_tiles, columns);
            best.b_in_task = best.pack_b && !s.packed_ahead && rows >= row_tiles;
        }
    }
    return least;
}

void cut_depth(const ContractionShape& s, const Machine& machine, ContractionTiles& t) {
    if (t.pack_b) {
        // All of k at once, unless two tiles of rows would not fit the second cache, or a panel of B is far from
        // fitting the first.
        int64_t most = std::max<int64_t>(64, machine.l2_bytes / 2 / (2 * t.mr * s.element_bytes));
        const int64_t first_cache = machine.l1_bytes / (t.nr * s.element_bytes);
        // AVX-512 takes a panel from the second cache as fast as it multiplies. Where many tiles of rows read it,
        // adding up the blocks costs more.
        const bool streams = machine.load_broadcast && s.m > kFewTiles * t.mr;
        const int64_t near = streams ? machine.l2_bytes / kPanelOfSecond / (t.nr * s.element_bytes) : first_cache;
        if (s.k >= kLongPanel * first_cache) most = std::min(most, std::max<int64_t>(64, near));
        t.k_blocks = s.m <= t.mr || !t.pack_a ? 1 : divide_up(s.k, most);
    } else if (!s.b_copied) {
        // A few rows of B at a time, along whole pages; products are added up in the first cache.
        t.k_blocks = divide_up(s.k, kUnpackedRows);
    }
    t.kc = divide_up(s.k, t.k_blocks);
}

// A register tile that is not quite the best for one thread may divide better among several.
void choose_for_threads(const ContractionShape& s, const Machine& machine, int threads,
                        const std::vector<RegisterTile>& list, const RegisterTile& alone, ContractionTiles& best) {
    const ContractionTiles first = best;
    double least = INFINITY;
    auto time_of_each = [&](const RegisterTile& r) {
        return r.cost / (double(divide_up(s.m, r.mr) * r.mr) * double(divide_up(s.n, r.nr) * r.nr));
    };
    auto consider = [&](const RegisterTile& r, double handicap) {
        ContractionTiles t = first;
        t.mr = r.mr, t.nr = r.nr, t.pack_a = r.pack_a;
        cut_depth(s, machine, t);
        if (s.same_sums && (t.kc != first.kc || t.pack_a != first.pack_a)) return;
        const double slowness = time_of_each(r) / time_of_each(alone);
        const double time = choose_tasks(s, machine, threads, slowness, t) * handicap;
        if (time < least) least = time, best = t;
    };
    consider(alone, 1);
    // Few rows wait for B rather than for their sums.
    const double most = alone.cost * (s.m <= kRowsWorthPacking ? kFewRowsWorthTrying : kWorthTrying);
    for (const RegisterTile& r : list)
        if (r.cost < most && (r.pack_a || !rows_collide(s, r.mr))) consider(r, kWorthChanging);
}

// Words that an instruction on whole tiles sums over: those that k is a multiple of, or little less; 0 where there are
// none. A long one leaves its sums in registers.
int64_t words_of_tiles(const ContractionShape& s) {
    constexpr int64_t kFewest = 8;
    if (!s.words || s.k < kFewest) return 0;
    const int64_t step = kWordsOfTiles[0], least = divide_up(s.k, step) * step;
    if (!s.k_fills && s.k != least) return 0;
    int64_t best = step;
    for (int64_t words : kWordsOfTiles)
        if (const int64_t filled = divide_up(s.k, words) * words;
            filled * 16 <= least * 17 && (s.k_fills || filled == s.k))
            best = words;
    return best;
}

// Tiles of 32 rows and columns by AMX. A few rows are better off in vectors.
bool choose_matrix_tiles(const ContractionShape& s, const Machine& machine, int threads, ContractionTiles& best) {
    constexpr int64_t kTile = 32, kFewRows = 12;
    constexpr double kFaster = 0.2;  // the time of a word, beside one in vectors
    if (!machine.has("amx-int8")) return false;
    const int64_t words = words_of_tiles(s);
    if (!words || s.n < kTile / 2 || (s.m_known && s.m <= kFewRows)) return false;
    best = {.mr = kTile, .nr = kTile, .k_multiple = words};
    best.kc = divide_up(s.k, words) * words;
    best.tile_words = words;
    // For fewer rows, on the same panels.
    if (s.tile_rows && !s.m_known) best.mr = s.tile_rows, best.tile_words = 0;
    best.parallel = threads > 1 && (is_open(s) || 2.0 * double(s.batch * s.m) * double(s.n * s.k) > 2e6);
    choose_tasks(s, machine, best.parallel ? threads : 1, best.parallel ? kFaster : 0, best);
    best.parallel &= best.tasks > 1 || is_open(s);
    best.a_ahead &= best.parallel;
    return true;
}

}  // namespace

ContractionTiles choose_tiles(const ContractionShape& given, const Machine& machine, int threads) {
    ContractionShape s = given;
    for (int64_t* extent : {&s.batch, &s.m, &s.n, &s.k}) *extent = std::max<int64_t>(*extent, 1);
    const int64_t lanes = std::max<int64_t>(1, machine.vector_bytes / s.element_bytes);
    ContractionTiles best;
    if (choose_matrix_tiles(s, machine, threads, best)) return best;
    best.pack_a = (s.m > 1 || !s.m_known) && !s.a_copied;
    // A B that comes late and is read for few rows is not worth a copy.
    best.pack_b = s.packed_ahead || !s.b_along_columns || (s.m > kRowsWorthPacking && !s.b_copied);
    std::vector<RegisterTile> list;
    add_register_tiles(s, machine, lanes, best.pack_a, best.pack_b, list);
    RegisterTile alone = fastest(list);
    if (best.pack_a && best.pack_b && s.a_along_depth && s.m_known) {
        // Few columns are not worth a copy of A.
        const size_t first = list.size();
        add_register_tiles(s, machine, lanes, false, best.pack_b, list);
        const double copy = kPackRow * double(s.m * s.k) / double(lanes * machine.fma_pipes);
        const RegisterTile& direct = fastest(list, first);
        if (direct.cost < alone.cost + copy) alone = direct;
    }
    best.mr = alone.mr, best.nr = alone.nr, best.pack_a = alone.pack_a;
    cut_depth(s, machine, best);
    if (s.tile_rows && !s.m_known) best.mr = s.tile_rows;
    if (s.tile_columns && !s.n_known) best.nr = s.tile_columns;
    best.parallel = threads > 1 && (is_open(s) || 2.0 * double(s.batch * s.m) * double(s.n * s.k) > 400e3);
    if (best.parallel && s.m_known && s.n_known && best.pack_b)
        choose_for_threads(s, machine, threads, list, alone, best);
    else
        choose_tasks(s, machine, best.parallel ? threads : 1, 0, best);
    best.parallel &= best.tasks > 1 || is_open(s);
    best.a_ahead &= best.parallel;
    const int64_t tiles = divide_up(s.m, best.mr);
    const bool fits = double(best.nc * s.k) * s.element_bytes <= double(machine.l2_bytes) / 2;
    best.prefetch = best.pack_b && !best.b_in_task && tiles > 1 && s.n > best.nr &&
                    (tiles <= kFewTiles || !s.m_known || (keeps_a_near(machine, best) && !fits));
    // Where the second cache has room for all panels of a task, each tile of A is fetched once, and C is written in
    // order.
    best.along_rows = (machine.load_broadcast || s.k <= kShortSum) && best.pack_b && best.nc > best.nr &&
                      (!best.prefetch || s.k <= kShortSum) && fits;
    best.prefetch &= !best.along_rows;
    // Another task's panel is not worth it.
    if (best.parallel && best.nc == best.nr && s.m_known && s.n_known) best.prefetch &= best.k_blocks > 1;
    return best;
}

std::vector<RowTile> choose_row_tiles(const ContractionShape& s, const ContractionTiles& tiles,
                                      const std::vector<int64_t>& sizes, const Machine& machine) {
    const int64_t lanes = std::max<int64_t>(1, machine.vector_bytes / s.element_bytes), vectors = tiles.nr / lanes;
    const double k = double(std::max<int64_t>(s.k, 1));
    // A B that does not stay in the second cache comes from far once, whatever the tiles.
    const bool far = double(s.n) * k * s.element_bytes > double(machine.l2_bytes);
    const double fetch = far ? double(tiles.nr * s.element_bytes) / kFarBytesPerCycle : 0;
    auto tile_time = [&](int64_t rows) {
        if (tiles.tile_words && rows == tiles.mr) return kMatrixStep + kMatrixTile / k;
        const double step = cycles_per_step(rows, vectors, lanes, s, machine);
        return step + kRowOfTile * double(rows) + (double(rows * vectors) * 1.5 + 20) / k;
    };
    std::vector<std::vector<double>> times(size_t(std::max(kMostRows, tiles.mr)) + 1);  // by rows of the tile, by size
    std::vector<double> ideal(sizes.size(), INFINITY);
    for (int64_t rows = 1; rows < int64_t(times.size()); ++rows)
        for (size_t i = 0; i < sizes.size(); ++i) {
            times[size_t(rows)].push_back(std::max(double(divide_up(sizes[i], rows)) * tile_time(rows), fetch));
            ideal[i] = std::min(ideal[i], times[size_t(rows)].back());
        }
    // How far the worst size is from its best, with these tiles and that for many rows.
    auto worst = [&](uint32_t set) {
        double most = 1;
        for (size_t i = 0; i < sizes.size(); ++i) {
            double least = times[size_t(tiles.mr)][i];
            for (int64_t rows = 1; rows <= kMostRows; ++rows)
                if (set >> rows & 1) least = std::min(least, times[size_t(rows)][i]);
            most = std::max(most, least / ideal[i]);
        }
        return most;
    };
    // One row is what is asked for most: a batch of one, a token at a time.
    const bool one = std::find(sizes.begin(), sizes.end(), 1) != sizes.end() && tiles.mr > 1 &&
                     tile_time(1) * kFastEnough < tile_time(tiles.mr);
    uint32_t chosen = one ? 2 : 0;
    double now = worst(chosen);
    const int most = s.n * s.k <= kSmallB ? 1 : kMostRowTiles;
    for (int count = std::popcount(chosen) + 1; count <= most && now > kFastEnough; ++count) {
        uint32_t best = 0;
        double least = now / 1.01;
        for (uint32_t set = 2; set < 2u << kMostRows; set += 2) {
            if (std::popcount(set) != count || (one && !(set & 2)) || (tiles.mr <= kMostRows && set >> tiles.mr & 1))
                continue;
            if (double w = worst(set); w < least) least = w, best = set;
        }
        if (best) chosen = best, now = least;
    }
    std::vector<RowTile> result;
    for (int64_t rows = 1; rows <= kMostRows; ++rows)
        if (chosen >> rows & 1) result.push_back({rows, std::llround(100 * tile_time(rows))});
    result.push_back({tiles.mr, std::llround(100 * tile_time(tiles.mr))});
    return result;
}

}  // namespace tessera
