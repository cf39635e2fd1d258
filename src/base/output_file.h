// A file that appears whole or not at all: written under a temporary name beside the target, renamed by commit().
#pragma once

#include <filesystem>
#include <string_view>

#include "base/error.h"

namespace tessera {

class OutputFile {
  public:
    // E0105 when the folder cannot be written to, or the target is there and is not a regular file.
    static Result<OutputFile> create(const std::filesystem::path& target);
    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&&) = delete;
    ~OutputFile();  // without commit(), nothing is left behind

    Status write(std::string_view bytes);
    // Without `flush`, what a crash of the machine leaves may be cut short: for one who can tell and do it again.
    Status commit(bool flush = true);

  private:
    OutputFile(std::filesystem::path target, std::filesystem::path temporary, int fd)
        : target_(std::move(target)), temporary_(std::move(temporary)), fd_(fd) {}
    Error failed(int reason) const;
    void close();

    std::filesystem::path target_, temporary_;
    int fd_ = -1;
    int noted_ = -1;  // among the unfinished files
};

// Of all files that are not committed, for one who is about to end the process: safe in a signal handler.
void remove_unfinished_files();

// All at once.
Status write_file(const std::filesystem::path& target, std::string_view bytes);

}  // namespace tessera
