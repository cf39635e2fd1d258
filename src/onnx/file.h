// A memory-mapped file. The mapping lives as long as the object. Regular files only; nothing is copied.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace tessera::onnx {

class MappedFile {
  public:
    // E0101 if it cannot be opened or is not a regular file. The mapping of an empty file is empty.
    static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::string_view bytes() const { return bytes_; }
    // Returns the pages of a range to the system if they belong to a mapped file; they are paged in again on demand.
    // Other memory is not changed.
    static void release_pages(const void* data, size_t bytes);
    const std::filesystem::path& path() const { return path_; }

  private:
    MappedFile(std::filesystem::path path, std::string_view bytes) : path_(std::move(path)), bytes_(bytes) {}
    std::filesystem::path path_;
    std::string_view bytes_;
};

}  // namespace tessera::onnx
