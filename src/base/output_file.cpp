#include "base/output_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tessera {
namespace fs = std::filesystem;
namespace {

// The temporary files that there are, as far as the table holds: names that a signal handler can read.
struct Unfinished {
    enum State { Free, Changing, There };
    std::atomic<int> state = Free;
    char path[1024];
};
Unfinished unfinished[64];

// The slot, or -1.
int note_unfinished(const std::string& path) {
    if (path.size() >= sizeof unfinished[0].path) return -1;
    for (Unfinished& slot : unfinished)
        if (int free = Unfinished::Free; slot.state.compare_exchange_strong(free, Unfinished::Changing)) {
            std::memcpy(slot.path, path.c_str(), path.size() + 1);
            slot.state = Unfinished::There;
            return static_cast<int>(&slot - unfinished);
        }
    return -1;
}

void forget_unfinished(int slot) {
    if (slot >= 0) unfinished[slot].state = Unfinished::Free;
}

}  // namespace

void remove_unfinished_files() {
    for (const Unfinished& slot : unfinished)
        if (slot.state == Unfinished::There) ::unlink(slot.path);
}

Result<OutputFile> OutputFile::create(const fs::path& target) {
    std::error_code ignored;
    fs::file_status status = fs::status(target, ignored);
    if (fs::exists(status) && !fs::is_regular_file(status))
        return Error(Code::E0105, "cannot write \"{}\": it exists and is not a file", target.string())
            .hint("name a file");
    std::string temporary = target.string() + ".XXXXXX";
    int fd = ::mkstemp(temporary.data());
    if (fd < 0) {
        int reason = errno;
        return Error(Code::E0105, "cannot write \"{}\": {}", target.string(), std::strerror(reason))
            .hint("check that the folder exists and is writable");
    }
    // mkstemp makes it private; give it the rights a new file would have.
    mode_t mask = ::umask(0);
    ::umask(mask);
    (void)::fchmod(fd, 0666 & ~mask);
    OutputFile file(target, temporary, fd);
    file.noted_ = note_unfinished(temporary);
    return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      noted_(std::exchange(other.noted_, -1)) {}

OutputFile::~OutputFile() { close(); }

void OutputFile::close() {
    if (fd_ < 0) return;
    ::close(std::exchange(fd_, -1));
    ::unlink(temporary_.c_str());
    forget_unfinished(std::exchange(noted_, -1));
}

Error OutputFile::failed(int reason) const {
    return Error(Code::E0105, "cannot write \"{}\": {}", target_.string(), std::strerror(reason));
}

Status OutputFile::write(std::string_view bytes) {
    constexpr size_t kAtOnce = size_t{1} << 30;  // systems refuse more than about 2 GiB in one call
    while (!bytes.empty()) {
        ssize_t done = ::write(fd_, bytes.data(), std::min(bytes.size(), kAtOnce));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return failed(errno);
        bytes.remove_prefix(static_cast<size_t>(done));
    }
    return {};
}

Status OutputFile::commit(bool flush) {
    if (flush && ::fsync(fd_) != 0 && errno != EINVAL) return failed(errno);
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) return failed(errno);
    forget_unfinished(std::exchange(noted_, -1));
    ::close(std::exchange(fd_, -1));
    return {};
}

Status write_file(const fs::path& target, std::string_view bytes) {
    OutputFile file = TRY(OutputFile::create(target));
    TRY(file.write(bytes));
    return file.commit();
}

}  // namespace tessera
