// A file's bytes, memory-mapped for as long as someone holds the pointer. Only regular files; nothing is copied.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace tessera::onnx {

class MappedFile {
  public:
    // E0101 when it cannot be opened or is not a regular file. An empty file maps to no bytes.
    static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::string_view bytes() const { return bytes_; }
    // Lets the system take back the pages of a range where they are a file's, to be read again should somebody ask; memory
    // that is not of a mapped file stays as it is.
    static void let_go_of_pages(const void* data, size_t bytes);
    const std::filesystem::path& path() const { return path_; }

  private:
    MappedFile(std::filesystem::path path, std::string_view bytes) : path_(std::move(path)), bytes_(bytes) {}
    std::filesystem::path path_;
    std::string_view bytes_;
};

}  // namespace tessera::onnx
