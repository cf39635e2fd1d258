// Runs compiled kernels on tensors, for tests and benchmarks.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/check.h"
#include "runtime/devices/bind_launches.h"
#include "runtime/devices/cpu_device.h"

namespace tessera {

inline Kernel make_kernel(std::string name, std::vector<std::string> symbols, std::vector<Buffer> buffers,
                          size_t params, Stmt body) {
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

// Memory that ends, but for less than 64 bytes, where the next access faults.
class GuardedMemory {
  public:
    explicit GuardedMemory(int64_t bytes) {
        const int64_t page = sysconf(_SC_PAGESIZE), used = (bytes + 63) / 64 * 64;
        size_ = static_cast<size_t>((used + page - 1) / page * page + page);
        start_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        data_ = start_ + size_ - page - used;
        mprotect(start_ + size_ - page, static_cast<size_t>(page), PROT_NONE);
    }
    ~GuardedMemory() {
        if (start_) munmap(start_, size_);
    }
    GuardedMemory(GuardedMemory&& other) noexcept
        : start_(std::exchange(other.start_, nullptr)), data_(other.data_), size_(other.size_) {}
    GuardedMemory& operator=(GuardedMemory&&) = delete;
    char* data() const { return data_; }

  private:
    char *start_ = nullptr, *data_ = nullptr;
    size_t size_ = 0;
};

// Each launch in `pieces` ranges, one after the other.
inline void run_launches(const CompiledKernel& kernel, const std::vector<void*>& buffers,
                         const std::vector<std::string>& names, const SymbolValues& symbols, int pieces = 1) {
    std::vector<int64_t> values;
    for (const std::string& name : names) values.push_back(symbols.at(name));
    auto launches = bind_launches(kernel, symbols);
    CHECK(launches.ok(), "{}", launches.error().to_string());
    for (const Launch& launch : *launches) {
        Memory scratch = make_memory(launch.local_bytes);
        for (int p = 0; p < pieces; ++p)
            run_range(launch, {buffers, values}, launch.grid.x * p / pieces, launch.grid.x * (p + 1) / pieces,
                      scratch.get());
    }
}

}  // namespace tessera
