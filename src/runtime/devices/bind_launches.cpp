#include "runtime/devices/bind_launches.h"

#include <algorithm>

#include "base/memory.h"

namespace tessera {

Result<std::vector<Launch>> bind_launches(const CompiledKernel& kernel, const SymbolValues& symbols) {
    std::vector<Launch> launches;
    for (const KernelLaunch& open : kernel.launches) {
        auto extent = evaluate_int(open.extent, symbols), scratch = evaluate_int(open.scratch_bytes, symbols);
        if (!extent || !scratch)
            return Error(Code::E0108, "{} has no range for these sizes: {}", open.symbol, to_string(open.extent));
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
