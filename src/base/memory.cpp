#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace tessera {
namespace {

constexpr int64_t kMapFrom = 1 << 20;   // from here on, fresh pages from the system are zero already
constexpr int64_t kHugeFrom = 4 << 20;  // from here on, large pages are asked for: fewer faults and page walks

std::atomic<int64_t> in_use{0};

std::atomic<int64_t>& limit() {
    static std::atomic<int64_t> value{static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 4 * 3};
    return value;
}

void* zeroed(int64_t bytes) {
    if (bytes >= kMapFrom) {
        void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return nullptr;
        if (bytes >= kHugeFrom) (void)madvise(p, bytes, MADV_HUGEPAGE);
        return p;
    }
    void* p = std::aligned_alloc(kBlockAlignment, bytes);
    if (p) std::memset(p, 0, bytes);
    return p;
}

}  // namespace

void set_memory_limit(int64_t bytes) { limit() = bytes; }
int64_t memory_limit() { return limit(); }
int64_t memory_in_use() { return in_use; }

Result<std::shared_ptr<void>> allocate_bytes(int64_t bytes) {
    int64_t max = limit();
    if (bytes < 0 || bytes > max)
        return Error(Code::E0408, "a tensor of {} bytes is over the memory limit of {}", bytes, max)
            .hint("raise the memory limit (--memory-limit on the command line) if the model really needs it");
    int64_t size = aligned(bytes);
    if (size == 0) size = kBlockAlignment;
    if (in_use.fetch_add(size) + size > max) {
        in_use -= size;
        return Error(Code::E0408, "tensors would take {} bytes, over the memory limit of {}", in_use + size, max)
            .hint("raise the memory limit (--memory-limit on the command line) if the model really needs it");
    }
    void* p = zeroed(size);
    if (!p) {
        in_use -= size;
        return Error(Code::E0408, "the system cannot allocate {} bytes", size);
    }
    return std::shared_ptr<void>(p, [size](void* q) {
        size >= kMapFrom ? void(munmap(q, size)) : std::free(q);
        in_use -= size;
    });
}

}  // namespace tessera
