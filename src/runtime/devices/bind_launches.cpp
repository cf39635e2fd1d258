#include "runtime/devices/bind_launches.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/memory.h"

namespace tessera {

namespace {

constexpr int64_t kMostRows = 65535;                 // blocks along y and z
constexpr int64_t kMostThreads = 256, kFewest = 32;  // of a block that is cut from a range
constexpr int64_t kSpreadOver = 512;                 // blocks that keep all of a GPU busy
constexpr int64_t kMostWithScratch = 32 << 10;       // threads at once that need memory of their own

// So few threads a block that there are blocks for all of the GPU, but not fewer than run together anyway.
void cut(Launch& launch, int64_t extent, int64_t scratch) {
    launch.block.x = kMostThreads;
    while (launch.block.x > kFewest && extent / launch.block.x < kSpreadOver) launch.block.x /= 2;
    launch.grid.x = (extent + launch.block.x - 1) / launch.block.x;
    if (scratch > 0) launch.grid.x = std::min(launch.grid.x, kMostWithScratch / launch.block.x);
    launch.local_bytes = scratch * launch.grid.x * launch.block.x;
}

Result<BoundMap> bind_map(const TileMap& open, const SymbolValues& symbols) {
    BoundMap map{.buffer = open.buffer,
                 .dtype = open.dtype,
                 .sizes = {},
                 .strides = {},
                 .box = open.box,
                 .from = open.from,
                 .to = open.to,
                 .every = open.every};
    for (const Expr& e : open.sizes) map.sizes.push_back(evaluate_int(e, symbols).value_or(0));
    for (const Expr& e : open.strides)
        map.strides.push_back(evaluate_int(e, symbols).value_or(0) * static_cast<int64_t>(dtype_bytes(open.dtype)));
    return map;
}

// A number of iterations that overflows.
Error too_large(const KernelLaunch& open, const Expr& iterations, const SymbolValues& symbols) {
    std::vector<std::string> sizes;
    for (const std::string& name : free_symbols(iterations))
        if (const auto at = symbols.find(name); at != symbols.end())
            sizes.push_back(fmt::format("{} = {}", name, at->second));
    return Error(Code::E0108, "the sizes of this run are too large: the number of iterations of {}, {}, overflows",
                 open.symbol, to_string(iterations))
        .note("{}", fmt::join(sizes, ", "));
}

Result<Launch> bind_blocks(const KernelLaunch& open, const SymbolValues& symbols) {
    Launch launch;
    launch.handle = open.handle;
    launch.begins_early = open.begins_early;
    if (!open.shape.fixed) {
        auto extent = evaluate_int(open.extent, symbols), scratch = evaluate_int(open.scratch_bytes, symbols);
        if (!extent || !scratch) return too_large(open, open.extent, symbols);
        cut(launch, *extent, *scratch);
        return launch;
    }
    std::array<int64_t, 6> sizes{};
    for (size_t i = 0; i < 6; ++i) {
        const Expr& e = i < 3 ? open.shape.grid[i] : open.shape.block[i - 3];
        auto n = evaluate_int(e, symbols);
        if (!n) return too_large(open, e, symbols);
        sizes[i] = *n;
    }
    launch.grid = {sizes[0], sizes[1], sizes[2]};
    launch.block = {sizes[3], sizes[4], sizes[5]};
    launch.shared_bytes = open.shape.shared_bytes;
    if (open.shape.groups > 0) {
        const bool pairs = open.shape.pairs;
        if (pairs) sizes[0] = (sizes[0] + 1) / 2;
        launch.grid = {sizes[0] * sizes[1] * sizes[2], 1, 1};
        launch.block.z *= open.shape.groups;
        launch.together = open.shape.together;
        launch.in_turn = launch.together == 1 || pairs;
        launch.grid.x *= launch.together;
        for (const TileMap& map : open.shape.maps) launch.maps.push_back(TRY(bind_map(map, symbols)));
    }
    for (int64_t* along : {&launch.grid.y, &launch.grid.z}) *along = std::min(*along, kMostRows);
    auto scratch = evaluate_int(open.scratch_bytes, symbols);
    launch.local_bytes = scratch.value_or(0);
    return launch;
}

}  // namespace

Result<std::vector<Launch>> bind_launches(const CompiledKernel& kernel, const SymbolValues& symbols) {
    std::vector<Launch> launches;
    for (const KernelLaunch& open : kernel.launches) {
        if (open.handle) {
            launches.push_back(TRY(bind_blocks(open, symbols)));
            continue;
        }
        auto extent = evaluate_int(open.extent, symbols), scratch = evaluate_int(open.scratch_bytes, symbols);
        if (!extent || !scratch) return too_large(open, open.extent, symbols);
        Launch launch;
        launch.handle = reinterpret_cast<void*>(open.function);
        launch.grid.x = *extent;
        launch.local_bytes = aligned(*scratch);
        launch.spread = open.parallel;
        launches.push_back(launch);
    }
    return launches;
}

int64_t most_local_bytes(const std::vector<Launch>& launches) {
    int64_t most = 0;
    for (const Launch& launch : launches) most = std::max(most, launch.local_bytes);
    return most;
}

}  // namespace tessera
