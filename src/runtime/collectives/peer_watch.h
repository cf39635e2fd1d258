// Which ranks of this host have ended. While a watch lives, a process that is terminated (mpirun ends all ranks when
// one dies) says first who is gone, and does not outlive mpirun. One watch at a time in a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::shard {

struct RankProcess {
    uint64_t space = 0;  // the same for processes that see each other's ids
    int64_t process = 0;
};

RankProcess this_process();

class PeerWatch {
  public:
    PeerWatch(int64_t rank, const std::vector<RankProcess>& ranks);
    ~PeerWatch();
    PeerWatch(const PeerWatch&) = delete;
    PeerWatch& operator=(const PeerWatch&) = delete;

    std::optional<int64_t> gone() const;       // the first rank of this host whose process has ended
    std::optional<int64_t> suspended() const;  // or is stopped by a signal

  private:
    std::vector<std::pair<int64_t, pid_t>> peers_;  // rank and process
    int signal_of_parent_ = 0;                      // that this process gets when its parent ends, without a watch
};

}  // namespace tessera::shard
