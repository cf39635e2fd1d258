#include "runtime/collectives/peer_watch.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <fstream>
#include <string>

#include "base/digest.h"

namespace tessera::shard {
namespace {

bool has_ended(pid_t process) { return kill(process, 0) != 0 && errno == ESRCH; }

// What the handler reads; a handler may neither allocate nor format.
struct LastWords {
    pid_t process;
    std::string text;
};
std::vector<LastWords> last_words;
struct sigaction previous_action;

void on_termination(int number) {
    for (const LastWords& w : last_words)
        if (has_ended(w.process)) {
            [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, w.text.data(), w.text.size());
        }
    sigaction(number, &previous_action, nullptr);
    raise(number);  // delivered when this handler returns
}

// The state follows the name, which is in brackets and may have any characters.
bool is_suspended(pid_t process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    std::string line;
    std::getline(file, line);
    const size_t name = line.rfind(')');
    return name != std::string::npos && name + 2 < line.size() && line[name + 2] == 'T';
}

}  // namespace

RankProcess this_process() {
    // Containers may share a host's name, and processes of different containers do not see each other's ids.
    std::array<char, HOST_NAME_MAX + 1> host{};
    gethostname(host.data(), host.size() - 1);
    std::array<char, 64> space{};
    if (readlink("/proc/self/ns/pid", space.data(), space.size() - 1) < 0) space[0] = '\0';
    const std::string name = fmt::format("{} {}", host.data(), space.data());
    return {digest_bytes(name.data(), name.size()).low, getpid()};
}

PeerWatch::PeerWatch(int64_t rank, const std::vector<RankProcess>& ranks) {
    const RankProcess own = this_process();
    for (size_t r = 0; r < ranks.size(); ++r)
        if (int64_t(r) != rank && ranks[r].space == own.space) peers_.emplace_back(r, pid_t(ranks[r].process));
    for (const auto& [peer, process] : peers_)
        last_words.push_back({process, fmt::format("error E0702: rank {}: rank {} has ended: its process {} is gone\n",
                                                   rank, peer, process)});
    struct sigaction action {};
    action.sa_handler = on_termination;
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, &previous_action);
    prctl(PR_GET_PDEATHSIG, &signal_of_parent_);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
}

PeerWatch::~PeerWatch() {
    prctl(PR_SET_PDEATHSIG, signal_of_parent_);
    sigaction(SIGTERM, &previous_action, nullptr);
    last_words.clear();
}

std::optional<int64_t> PeerWatch::gone() const {
    for (const auto& [rank, process] : peers_)
        if (has_ended(process)) return rank;
    return {};
}

std::optional<int64_t> PeerWatch::suspended() const {
    for (const auto& [rank, process] : peers_)
        if (is_suspended(process)) return rank;
    return {};
}

}  // namespace tessera::shard
