#include "runtime/code_cache.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/digest.h"
#include "base/output_file.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kCodeMagic = "TSRCODE2", kCodeSuffix = ".tsro";
constexpr int64_t kDefaultLimit = int64_t{8} << 30;
constexpr auto kAbandoned = std::chrono::hours(1);  // a temporary file of a process that is gone

// The header of an entry, before its code.
struct CodeHeader {
    char magic[8];
    char key[32];
    uint64_t bytes;
    Digest checksum;
};

// The identity that the linker gave to the file this code is in; where it gave none, the program's time and size.
std::string build_identity() {
    struct Search {
        uintptr_t here;
        std::string found;
    } search{reinterpret_cast<uintptr_t>(&build_identity), {}};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
            auto& s = *static_cast<Search*>(data);
            bool ours = false;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& p = info->dlpi_phdr[i];
                ours |= p.p_type == PT_LOAD && s.here - (info->dlpi_addr + p.p_vaddr) < p.p_memsz;
            }
            for (int i = 0; ours && i < info->dlpi_phnum; ++i) {
                const auto& p = info->dlpi_phdr[i];
                if (p.p_type != PT_NOTE) continue;
                const char* at = reinterpret_cast<const char*>(info->dlpi_addr + p.p_vaddr);
                for (const char* end = at + p.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
                    const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
                    const char* name = at + sizeof *note;
                    const char* text = name + (note->n_namesz + 3) / 4 * 4;
                    if (note->n_type == NT_GNU_BUILD_ID) s.found.assign(text, note->n_descsz);
                    at = text + (note->n_descsz + 3) / 4 * 4;
                }
            }
            return ours ? 1 : 0;
        },
        &search);
    if (!search.found.empty()) return search.found;
    struct stat status {};
    if (stat("/proc/self/exe", &status) != 0) return {};
    return fmt::format("{} {} {}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

int64_t size_limit() {
    const char* text = std::getenv("TESSERA_CACHE_SIZE");
    if (!text || !*text) return kDefaultLimit;
    char* end = nullptr;
    double n = std::strtod(text, &end);
    for (std::string_view units = "KMG"; *end && !units.empty(); units.remove_prefix(1)) {
        n *= 1024;
        if ((*end & ~0x20) == units[0]) break;
    }
    return n >= 0 && n < 9e18 ? static_cast<int64_t>(n) : kDefaultLimit;
}

fs::path user_folder() {
    if (const char* named = std::getenv("TESSERA_CACHE")) return named;
    if (const char* base = std::getenv("XDG_CACHE_HOME"); base && *base) return fs::path(base) / "tessera";
    if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache" / "tessera";
    return {};
}

}  // namespace

std::string code_key(const std::vector<std::string>& parts) {
    static const std::string build = build_identity();
    std::string all = build;
    for (const std::string& part : parts) all += fmt::format("\n{}:", part.size()) + part;
    return to_string(digest_bytes(all.data(), all.size()));
}

Result<CodeCache> CodeCache::open(const std::optional<std::string>& folder) {
    const fs::path path = folder ? fs::path(*folder) : user_folder();
    if (path.empty()) return CodeCache({}, 0);
    std::error_code failed;
    fs::create_directories(path, failed);
    if (folder && (failed || !fs::is_directory(path) || access(path.c_str(), W_OK) != 0)) {
        const int reason = failed ? failed.value() : fs::is_directory(path) ? EACCES : ENOTDIR;
        return Error(Code::E0605, "cannot use the cache folder \"{}\": {}", path.string(), std::strerror(reason))
            .hint("name a writable folder, or disable the cache");
    }
    return CodeCache(path, size_limit());
}

fs::path CodeCache::path_of(const std::string& key) const { return folder_ / (key + std::string(kCodeSuffix)); }

std::optional<std::string> CodeCache::find(const std::string& key) const {
    if (!enabled()) return {};
    std::ifstream file(path_of(key), std::ios::binary);
    if (!file) return {};
    std::string text((std::istreambuf_iterator<char>(file)), {});
    CodeHeader header{};
    if (text.size() >= sizeof header) std::memcpy(&header, text.data(), sizeof header);
    const std::string_view code = std::string_view(text).substr(std::min(text.size(), sizeof header));
    if (std::string_view(header.magic, sizeof header.magic) != kCodeMagic ||
        std::string_view(header.key, sizeof header.key) != key || header.bytes != code.size() ||
        header.checksum != digest_bytes(code.data(), code.size())) {
        drop(key);
        return {};
    }
    ::utimensat(AT_FDCWD, path_of(key).c_str(), nullptr, 0);  // used just now
    return std::string(code);
}

Status CodeCache::store(const std::string& key, std::string_view code) const {
    if (!enabled() || static_cast<int64_t>(code.size() + sizeof(CodeHeader)) > limit_) return {};
    CodeHeader header{};
    std::memcpy(header.magic, kCodeMagic.data(), sizeof header.magic);
    std::memcpy(header.key, key.data(), std::min(key.size(), sizeof header.key));
    header.bytes = code.size();
    header.checksum = digest_bytes(code.data(), code.size());
    OutputFile file = TRY(OutputFile::create(path_of(key)));
    TRY(file.write({reinterpret_cast<const char*>(&header), sizeof header}));
    TRY(file.write(code));
    TRY(file.commit());
    shrink();
    return {};
}

void CodeCache::drop(const std::string& key) const {
    std::error_code ignored;
    fs::remove(path_of(key), ignored);
}

std::vector<CodeCache::Entry> CodeCache::entries() const {
    std::vector<Entry> found;
    std::error_code ignored;
    std::error_code ended;  // also where the folder goes away under it
    for (fs::directory_iterator at(folder_, ended), end_of_folder; !ended && at != end_of_folder; at.increment(ended)) {
        const fs::directory_entry file = *at;
        const std::string name = file.path().filename().string();
        size_t end = name.size() + 1;
        for (std::string_view suffix : {kCodeSuffix, kProgramSuffix})
            if (const size_t from = name.find(suffix); from != std::string::npos) end = from + suffix.size();
        const auto used = file.last_write_time(ignored);
        if (end > name.size() || ignored) continue;
        if (end < name.size()) {  // half written
            if (fs::file_time_type::clock::now() - used > kAbandoned) fs::remove(file.path(), ignored);
            continue;
        }
        const auto bytes = static_cast<int64_t>(file.file_size(ignored));
        if (!ignored) found.push_back({file.path(), bytes, used, name.ends_with(kProgramSuffix)});
    }
    std::sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    return found;
}

int64_t CodeCache::clear() const {
    int64_t gone = 0;
    std::error_code ignored;
    for (const Entry& entry : entries())
        if (fs::remove(entry.path, ignored)) gone += entry.bytes;
    return gone;
}

// Other processes may do the same at the same time: what is gone already is no error.
void CodeCache::shrink() const {
    const std::vector<Entry> all = entries();
    int64_t total = 0;
    for (const Entry& entry : all) total += entry.bytes;
    std::error_code ignored;
    for (const Entry& entry : all) {
        if (total <= limit_) break;
        fs::remove(entry.path, ignored);
        total -= entry.bytes;
    }
}

}  // namespace tessera
