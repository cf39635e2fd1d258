#include "bench/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

namespace tessera::cli {
namespace {

// What a program said last, on one line.
std::string last_lines(const std::filesystem::path& log, size_t most = 3) {
    std::vector<std::string> lines;
    std::ifstream file(log);
    for (std::string line; std::getline(file, line);)
        if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
    if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
    return fmt::format("{}", fmt::join(lines, " | "));
}

}  // namespace

Result<Child> Child::start(const std::vector<std::string>& command, const std::filesystem::path& log) {
    int in[2], out[2], failed[2];
    // A socket, so that writing to a program that has ended is an error and no signal.
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) || pipe2(out, O_CLOEXEC) || pipe2(failed, O_CLOEXEC))
        return Error(Code::E0501, "cannot create a pipe: {}", std::strerror(errno));
    int errors = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // it may stand still when we die
        if (getppid() != parent) _exit(1);
        setpgid(0, 0);  // Ctrl-C is ours to act on
        std::signal(SIGPIPE, SIG_DFL);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        if (errors >= 0) dup2(errors, STDERR_FILENO);
        execvp(arguments[0], arguments.data());
        int reason = errno;
        [[maybe_unused]] auto written = write(failed[1], &reason, sizeof reason);
        _exit(127);
    }
    for (int fd : {in[0], out[1], failed[1], errors})
        if (fd >= 0) close(fd);
    int reason = pid < 0 ? errno : 0;
    if (pid >= 0 && read(failed[0], &reason, sizeof reason) <= 0) reason = 0;
    close(failed[0]);
    Child child(pid, in[1], out[0], log);
    if (reason) return Error(Code::E0501, "\"{}\" cannot be started: {}", command[0], std::strerror(reason));
    return child;
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      to_(std::exchange(other.to_, -1)),
      from_(std::exchange(other.from_, -1)),
      log_(std::move(other.log_)),
      read_(std::move(other.read_)) {}

Child::~Child() {
    for (int fd : {to_, from_})
        if (fd >= 0) close(fd);
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
}

Error Child::ended() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    std::string how = WIFSIGNALED(status)
                          ? fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
                          : fmt::format("ended with status {}", WEXITSTATUS(status));
    std::string said = last_lines(log_);
    return Error(Code::E0501, "{}{}", how, said.empty() ? "" : ": " + said);
}

Status Child::send(const std::string& line) {
    for (size_t done = 0; done < line.size();) {
        ssize_t n = ::send(to_, line.data() + done, line.size() - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return ended();
        done += static_cast<size_t>(n);
    }
    return {};
}

Result<std::string> Child::receive() {
    for (;;) {
        if (size_t end = read_.find('\n'); end != std::string::npos) {
            std::string line = read_.substr(0, end);
            read_.erase(0, end + 1);
            return line;
        }
        if (interrupted()) return Error(Code::E0410, "interrupted");
        pollfd waiting{from_, POLLIN, 0};
        if (poll(&waiting, 1, 100) <= 0) continue;
        char buffer[4096];
        ssize_t n = read(from_, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return ended();
        read_.append(buffer, static_cast<size_t>(n));
    }
}

Result<Json> Child::ask(const Json& question) {
    if (pid_ <= 0) return Error(Code::E0501, "it has ended");
    kill(pid_, SIGCONT);
    TRY(send(question.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"));
    std::string line = TRY(receive());
    kill(pid_, SIGSTOP);
    Json answer = Json::parse(line, nullptr, false);
    if (answer.is_discarded()) return Error(Code::E0501, "it answered \"{}\"", line);
    return answer;
}

Result<TemporaryFolder> TemporaryFolder::make() {
    std::error_code error;
    std::string name = (std::filesystem::temp_directory_path(error) / "tessera-XXXXXX").string();
    if (error || !mkdtemp(name.data()))
        return Error(Code::E0105, "cannot make a temporary folder: {}", error ? error.message() : std::strerror(errno));
    return TemporaryFolder(name);
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace tessera::cli
