// Compiled code on disk, alone or with the program and its weights, by a key of everything it was made from. Processes
// may share a folder: an entry appears whole or not at all, and one that is damaged or not ours is dropped. The least
// recently used go when the folder grows too large.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "onnx/file.h"

namespace tessera {

// A key of 32 hexadecimal digits. `parts` is all that the code depends on besides this build of the compiler.
std::string code_key(const std::vector<std::string>& parts);

// A program in its memory-mapped cache file.
struct ProgramEntry {
    std::shared_ptr<const onnx::MappedFile> file;
    std::string_view program, code, weights;  // weights begin on a page
};

// A file with one program. The pieces of weights stand one after the other, each on a multiple of 64 bytes.
Status write_program(const std::filesystem::path& path, const std::string& key, std::string_view program,
                     std::string_view code, const std::vector<std::string_view>& weights);
bool is_program(std::string_view bytes);  // by how a file begins
// Checks everything but the weights, of which it looks at a page in each megabyte. E0605: it is damaged or no program.
struct KeyedProgram {
    std::string key;
    ProgramEntry entry;
};
Result<KeyedProgram> read_program(const std::filesystem::path& path);
// E0605, too: it is of another key.
Result<ProgramEntry> read_program(const std::filesystem::path& path, const std::string& key);

class CodeCache {
  public:
    // `folder` as asked for: none for the user's (TESSERA_CACHE, or tessera in the system's folder for caches), empty
    // for no cache. E0605 where one that was asked for by name cannot be written to.
    static Result<CodeCache> open(const std::optional<std::string>& folder);
    CodeCache(std::filesystem::path folder, int64_t limit) : folder_(std::move(folder)), limit_(limit) {}

    bool enabled() const { return !folder_.empty(); }
    const std::filesystem::path& folder() const { return folder_; }
    std::optional<std::string> find(const std::string& key) const;
    Status store(const std::string& key, std::string_view code) const;
    void drop(const std::string& key) const;

    std::optional<ProgramEntry> find_program(const std::string& key) const;
    Status store_program(const std::string& key, std::string_view program, std::string_view code,
                         const std::vector<std::string_view>& weights) const;
    void drop_program(const std::string& key) const;

    struct Entry {
        std::filesystem::path path;
        int64_t bytes = 0;
        std::filesystem::file_time_type used;
        bool program = false;  // with its weights; false: code alone, or a measured cost
    };
    std::vector<Entry> entries() const;  // the least recently used first
    int64_t limit() const { return limit_; }
    int64_t clear() const;  // the bytes that went

  private:
    std::filesystem::path path_of(const std::string& key) const;
    std::filesystem::path program_path(const std::string& key) const;
    void shrink() const;

    static constexpr std::string_view kProgramSuffix = ".tsrp";
    std::filesystem::path folder_;
    int64_t limit_ = 0;  // bytes of all entries
};

}  // namespace tessera
