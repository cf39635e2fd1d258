#include <algorithm>
#include <bit>
#include <cmath>

#include "kernel/gpu/device_size.h"
#include "kernel/gpu/memory_bound/row_reduction_kernel.h"

namespace tessera {
namespace {

constexpr int64_t kMostRowThreads = 1024, kWarpThreads = 32;
constexpr int64_t kBytesInFlight = 64;     // of a thread, that hide the latency of memory
constexpr int64_t kShortRowThreads = 128;  // of a block that has several rows
constexpr int64_t kDynamicThreads = 256;   // of a row of unknown length
constexpr int64_t kMostTurns = 64;         // that are unrolled
constexpr int64_t kLongRowTurns = 16, kFewestTurns = 2;
// Registers of a thread for elements of its row: more leave too few threads on an SM, and of 1024 threads each has 64.
constexpr double kMostWords = 40;
constexpr int64_t kLineBytes = 128;
constexpr int64_t kColumns = 32, kTurnsOfColumn = 8, kColumnThreads = 512, kSectorBytes = 32;

double cost_of(int64_t threads, int64_t vectors, int64_t wanted, int64_t lanes, int64_t vector_bytes) {
    const int64_t turns = (vectors + threads - 1) / threads, segment = threads * vector_bytes;
    // Threads without an element issue nothing; those that load single elements are too few in flight without them.
    const double idle = double(threads * turns) / double(vectors) - 1;
    double cost = 1 + (lanes > 1 ? 0.5 : 1.0) * idle;
    cost += 0.05 * std::abs(std::log2(double(turns) / double(wanted)));
    if (threads > kWarpThreads) cost += 0.05;  // a barrier
    if (turns == 1 || segment >= kLineBytes) return cost;
    // Threads of a row that read less of it at a time than a cache line, or parts of sectors.
    cost += 0.1 * std::log2(double(kLineBytes) / double(segment));
    return lanes > 1 && vectors * vector_bytes % kSectorBytes != 0 ? cost + 0.5 : cost;
}

}  // namespace

RowThreads choose_row_threads(const Machine& machine, const Expr& rows, const Expr& length, int64_t lanes,
                              int64_t bytes, double words) {
    RowThreads made{.lanes = lanes};
    const auto elements = length.as_int(), count = rows.as_int();
    if (!elements) {
        made.threads = kDynamicThreads;
        return made;
    }
    const int64_t vectors = std::max<int64_t>(1, (*elements + lanes - 1) / lanes);
    const double all = count ? double(*count) * double(vectors) : 1e12;
    const auto share = static_cast<int64_t>(std::min(all / double(device_threads(machine)), 1e6));
    const int64_t wanted = std::clamp<int64_t>(share, 1, std::max<int64_t>(1, kBytesInFlight / (lanes * bytes)));
    double best = 1e30;
    for (int64_t threads = 1; threads <= kMostRowThreads; threads *= 2) {
        if (threads > 1 && threads / 2 >= vectors) break;
        const int64_t turns = (vectors + threads - 1) / threads;
        if (turns > kMostTurns || double(turns * lanes) * words > kMostWords) continue;
        if (const double cost = cost_of(threads, vectors, wanted, lanes, lanes * bytes); cost < best) {
            best = cost;
            made.threads = threads, made.turns = turns;
        }
    }
    if (made.turns == 0) {
        const auto few = static_cast<uint64_t>(std::max<int64_t>(1, vectors / kLongRowTurns));
        made.threads = std::clamp<int64_t>(int64_t(std::bit_floor(few)), kWarpThreads, kMostRowThreads);
        // Few rows need more threads each to keep as many loads in flight.
        while (count && made.threads < kMostRowThreads && *count * made.threads * 2 < device_threads(machine) &&
               made.threads * kFewestTurns < vectors)
            made.threads *= 2;
        return made;
    }
    const auto blocks = [&](int64_t together) { return count ? *count / together : int64_t{1} << 40; };
    made.rows = std::max<int64_t>(1, kShortRowThreads / made.threads);
    while (made.rows > 1 && made.rows * made.threads > kWarpThreads && blocks(made.rows) < 2 * machine.cores)
        made.rows /= 2;
    return made;
}

RowThreads choose_column_threads(const Machine& machine, const Expr& rows, const Expr& length, int64_t bytes,
                                 double words) {
    RowThreads made{.rows = kColumns, .across = true};
    const auto elements = length.as_int(), count = rows.as_int();
    while (count && *count / made.rows < 2 * machine.cores && made.rows * bytes > kSectorBytes) made.rows /= 2;
    made.threads = kColumnThreads / made.rows;
    if (!elements) return made;
    while (made.threads > 1 && (made.threads / 2) * kTurnsOfColumn >= *elements) made.threads /= 2;
    while (made.rows * made.threads < kShortRowThreads) made.rows *= 2;  // short rows: a block has more of them
    const int64_t turns = (*elements + made.threads - 1) / made.threads;
    if (turns <= kMostTurns && double(turns) * words <= kMostWords) made.turns = turns;
    return made;
}

}  // namespace tessera
