// Entries of the cache that are whole programs.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/digest.h"
#include "base/output_file.h"
#include "runtime/code_cache.h"
#include "runtime/memory_plan.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kProgramMagic = "TSRPROG2";
constexpr size_t kPage = 4096;
constexpr size_t kSampleEvery = 1 << 20, kSampleBytes = 4096;

// Then come the program, its code and, on a page of their own, its weights.
struct ProgramHeader {
    char magic[8];
    char key[32];
    uint64_t program_bytes, code_bytes, weight_bytes;
    Digest checksum;  // of program and code
    Digest samples;   // checksum of some of the weights
    Digest own;       // checksum of all above

    Digest expected() const { return digest_bytes(this, offsetof(ProgramHeader, own)); }
    uint64_t weights_at() const { return (sizeof *this + program_bytes + code_bytes + kPage - 1) / kPage * kPage; }
};

// Of all weights one after the other, the beginning of each megabyte and the end.
class Samples {
  public:
    explicit Samples(size_t total)
        : total_(total), bytes_((total + kSampleEvery - 1) / kSampleEvery * kSampleBytes + kSampleBytes) {}

    void add(std::string_view bytes) {
        for (size_t k = at_ / kSampleEvery; k * kSampleEvery < at_ + bytes.size(); ++k)
            take(bytes, k, k * kSampleEvery);
        take(bytes, bytes_.size() / kSampleBytes - 1, total_ - std::min(total_, kSampleBytes));
        at_ += bytes.size();
    }
    Digest checksum() const { return digest_bytes(bytes_.data(), bytes_.size()); }

    // Where they are, for one who reads only them.
    template <typename F>
    void each_place(F f) {
        for (size_t k = 0; k + 1 < bytes_.size() / kSampleBytes; ++k) f(k * kSampleEvery, slot(k));
        f(total_ - std::min(total_, kSampleBytes), slot(bytes_.size() / kSampleBytes - 1));
    }

  private:
    char* slot(size_t k) { return bytes_.data() + k * kSampleBytes; }
    void take(std::string_view bytes, size_t k, size_t from) {
        const size_t begin = std::max(from, at_), end = std::min(from + kSampleBytes, at_ + bytes.size());
        if (begin < end) std::memcpy(slot(k) + (begin - from), bytes.data() + (begin - at_), end - begin);
    }

    size_t total_, at_ = 0;
    std::vector<char> bytes_;
};

// By reading, not through the mapping: pages that are looked at only here need not stay in memory.
bool samples_match(const fs::path& path, const ProgramHeader& header) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    Samples samples(header.weight_bytes);
    bool whole = true;
    samples.each_place([&](size_t at, char* into) {
        const size_t bytes = std::min(kSampleBytes, header.weight_bytes - at);
        whole &= ::pread(fd, into, bytes, off_t(header.weights_at() + at)) == ssize_t(bytes);
    });
    ::close(fd);
    return whole && samples.checksum() == header.samples;
}

}  // namespace

fs::path CodeCache::program_path(const std::string& key) const { return folder_ / (key + std::string(kProgramSuffix)); }

void CodeCache::drop_program(const std::string& key) const {
    std::error_code ignored;
    fs::remove(program_path(key), ignored);
}

bool is_program(std::string_view bytes) { return bytes.starts_with(kProgramMagic); }

Result<KeyedProgram> read_program(const fs::path& path) {
    auto file = TRY(onnx::MappedFile::open(path));
    const std::string_view bytes = file->bytes();
    ProgramHeader header{};
    if (bytes.size() >= sizeof header) std::memcpy(&header, bytes.data(), sizeof header);
    if (std::string_view(header.magic, sizeof header.magic) != kProgramMagic)
        return Error(Code::E0605, "\"{}\" is not a saved executable", path.string())
            .hint("load a model with Model::load (tessera.load in Python), then compile it");
    const bool whole =
        header.own == header.expected() && header.weights_at() + header.weight_bytes == bytes.size() &&
        header.checksum == digest_bytes(bytes.data() + sizeof header, header.program_bytes + header.code_bytes) &&
        samples_match(path, header);
    if (!whole) return Error(Code::E0605, "\"{}\" is damaged", path.string());
    return KeyedProgram{
        std::string(header.key, sizeof header.key),
        {file, bytes.substr(sizeof header, header.program_bytes),
         bytes.substr(sizeof header + header.program_bytes, header.code_bytes), bytes.substr(header.weights_at())}};
}

Result<ProgramEntry> read_program(const fs::path& path, const std::string& key) {
    KeyedProgram found = TRY(read_program(path));
    if (found.key == key) return std::move(found.entry);
    return Error(Code::E0605, "\"{}\" was written by another build of Tessera", path.string())
        .hint("compile the model again");
}

Status write_program(const fs::path& path, const std::string& key, std::string_view program, std::string_view code,
                     const std::vector<std::string_view>& weights) {
    ProgramHeader header{};
    std::memcpy(header.magic, kProgramMagic.data(), sizeof header.magic);
    std::memcpy(header.key, key.data(), std::min(key.size(), sizeof header.key));
    header.program_bytes = program.size();
    header.code_bytes = code.size();
    for (std::string_view w : weights) header.weight_bytes += size_t(aligned(ssize_t(w.size())));
    std::string head(program);
    head += code;
    header.checksum = digest_bytes(head.data(), head.size());
    head.resize(header.weights_at() - sizeof header);
    const std::string padding(kBlockAlignment, '\0');
    auto each_piece = [&](auto f) -> Status {
        for (std::string_view w : weights) {
            TRY(f(w));
            TRY(f(std::string_view(padding).substr(0, size_t(aligned(ssize_t(w.size()))) - w.size())));
        }
        return {};
    };
    Samples samples(header.weight_bytes);
    TRY(each_piece([&](std::string_view piece) -> Status {
        samples.add(piece);
        return {};
    }));
    header.samples = samples.checksum();
    header.own = header.expected();
    OutputFile file = TRY(OutputFile::create(path));
    TRY(file.write({reinterpret_cast<const char*>(&header), sizeof header}));
    TRY(file.write(head));
    TRY(each_piece([&](std::string_view piece) { return file.write(piece); }));
    return file.commit(false);
}

std::optional<ProgramEntry> CodeCache::find_program(const std::string& key) const {
    if (!enabled()) return {};
    auto entry = read_program(program_path(key), key);
    if (!entry.ok()) {
        if (entry.error().code() == Code::E0605) drop_program(key);
        return {};
    }
    ::utimensat(AT_FDCWD, program_path(key).c_str(), nullptr, 0);  // used just now
    return *entry;
}

Status CodeCache::store_program(const std::string& key, std::string_view program, std::string_view code,
                                const std::vector<std::string_view>& weights) const {
    int64_t bytes = static_cast<int64_t>(program.size() + code.size());
    for (std::string_view w : weights) bytes += static_cast<int64_t>(w.size());
    if (!enabled() || bytes > limit_) return {};
    TRY(write_program(program_path(key), key, program, code, weights));
    shrink();
    return {};
}

}  // namespace tessera
