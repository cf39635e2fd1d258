// Runs compiled kernels on tensors, for tests and benchmarks.
#pragma once

#include <cstdlib>

#include "llvm/compile_kernels.h"

namespace tessera {

inline Kernel make_kernel(std::string name, std::vector<std::string> symbols, std::vector<Buffer> buffers, size_t params,
                          Stmt body) {
    Kernel k;
    k.name = std::move(name);
    k.symbols = std::move(symbols);
    k.buffers = std::move(buffers);
    k.params = params;
    k.body = std::move(body);
    return k;
}

struct FreeMemory {
    void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, FreeMemory>;
inline Memory make_memory(int64_t bytes) {
    return Memory(static_cast<char*>(std::aligned_alloc(64, (std::max<int64_t>(bytes, 1) + 63) / 64 * 64)));
}

// Each launch in `pieces` ranges, one after the other.
inline void run_launches(const CompiledKernel& kernel, const std::vector<void*>& buffers,
                         const std::vector<std::string>& names, const SymbolValues& symbols, int pieces = 1) {
    std::vector<int64_t> values;
    for (const std::string& name : names) values.push_back(symbols.at(name));
    for (const Launch& launch : kernel.launches) {
        const int64_t extent = *evaluate_int(launch.extent, symbols);
        Memory scratch = make_memory(*evaluate_int(launch.scratch_bytes, symbols));
        for (int p = 0; p < pieces; ++p)
            launch.function(buffers.data(), values.data(), extent * p / pieces, extent * (p + 1) / pieces, scratch.get());
    }
}

}  // namespace tessera
