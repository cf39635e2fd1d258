// Compiled code on disk, by a key of everything it was made from. Processes may share a folder: an entry appears whole
// or not at all, and one that is damaged or not ours is dropped. The least recently used go when the folder grows too
// large.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"

namespace tessera {

// A key of 32 hexadecimal digits. `parts` is all that the code depends on besides this build of the compiler.
std::string code_key(const std::vector<std::string>& parts);

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

  private:
    std::filesystem::path path_of(const std::string& key) const;
    void shrink() const;

    std::filesystem::path folder_;
    int64_t limit_ = 0;  // bytes of all entries
};

}  // namespace tessera
