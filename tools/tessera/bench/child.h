// A process that answers one line of JSON for each line of JSON it is sent, and stands still in between.
#pragma once

#include <filesystem>

#include "command.h"

namespace tessera::cli {

class Child {
  public:
    // E0501 where it cannot be started. What it writes to standard error ends up in `log`.
    static Result<Child> start(const std::vector<std::string>& command, const std::filesystem::path& log);
    Child(Child&& other) noexcept;
    Child& operator=(Child&&) = delete;
    ~Child();

    // E0501 with the end of its log where it ends instead of answering, E0410 on Ctrl-C.
    Result<Json> ask(const Json& question);

  private:
    Child(int pid, int to, int from, std::filesystem::path log)
        : pid_(pid), to_(to), from_(from), log_(std::move(log)) {}
    Status send(const std::string& line);
    Result<std::string> receive();
    Error ended();

    int pid_ = -1, to_ = -1, from_ = -1;
    std::filesystem::path log_;
    std::string read_;  // beyond the last line
};

// A folder that goes with everything in it.
class TemporaryFolder {
  public:
    static Result<TemporaryFolder> make();  // E0105
    TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    TemporaryFolder& operator=(TemporaryFolder&&) = delete;
    ~TemporaryFolder();
    const std::filesystem::path& path() const { return path_; }

  private:
    explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
    std::filesystem::path path_;
};

}  // namespace tessera::cli
