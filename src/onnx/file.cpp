#include "onnx/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

namespace tessera::onnx {
namespace {

// All files that are mapped just now. Never destroyed: tensors in static storage may end after it.
struct Mappings {
    std::mutex mutex;
    std::map<uintptr_t, size_t> sizes;  // by address
};
Mappings& mappings() {
    static auto* all = new Mappings();
    return *all;
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
    // Without O_NONBLOCK, opening a pipe would wait for its other end.
    int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int reason = errno;
        return Error(Code::E0101, "cannot open \"{}\": {}", path.string(), std::strerror(reason))
            .hint("check the path and the file's permissions");
    }
    struct Closer {
        int fd;
        ~Closer() { ::close(fd); }
    } closer{fd};

    struct stat info {};
    if (::fstat(fd, &info) != 0)
        return Error(Code::E0101, "cannot inspect \"{}\": {}", path.string(), std::strerror(errno));
    if (!S_ISREG(info.st_mode))
        return Error(Code::E0101, "\"{}\" is {}", path.string(),
                     S_ISDIR(info.st_mode) ? "a folder, not a file" : "not a regular file")
            .hint("name a file on disk; it is memory-mapped");

    auto size = static_cast<size_t>(info.st_size);
    if (size == 0) return std::shared_ptr<const MappedFile>(new MappedFile(path, ""));
    void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (start == MAP_FAILED) return Error(Code::E0101, "cannot map \"{}\": {}", path.string(), std::strerror(errno));
    Mappings& all = mappings();
    std::lock_guard lock(all.mutex);
    all.sizes[reinterpret_cast<uintptr_t>(start)] = size;
    return std::shared_ptr<const MappedFile>(new MappedFile(path, {static_cast<const char*>(start), size}));
}

MappedFile::~MappedFile() {
    if (bytes_.empty()) return;
    Mappings& all = mappings();
    std::lock_guard lock(all.mutex);
    all.sizes.erase(reinterpret_cast<uintptr_t>(bytes_.data()));
    ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

void MappedFile::release_pages(const void* data, size_t bytes) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const uintptr_t from = (begin + page - 1) / page * page, to = (begin + bytes) / page * page;
    if (from >= to) return;
    Mappings& all = mappings();
    std::lock_guard lock(all.mutex);
    auto at = all.sizes.upper_bound(begin);
    if (at == all.sizes.begin()) return;
    --at;
    if (at->first + at->second < begin + bytes) return;
    (void)::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

}  // namespace tessera::onnx
