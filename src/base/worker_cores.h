// On which cores the pool's workers run, where others want those cores too. A worker that has lost its core in the
// middle of its work is brought to the core of the caller that waits for it. Where the system cannot do that, these do
// nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera {

// A worker's thread, as the system knows it.
class WorkerCores {
  public:
    // By the worker itself, first: it is woken often and works for a short time.
    void begin();

    // Whether it stands still: it could run, but others have its core. Takes some microseconds.
    bool lost_its_core() const;

    void move_to(int core) const;
    // Any of the process's cores but that; -1: any.
    void keep_off(int core) const;

  private:
    std::atomic<int> thread_{0};  // 0: has not begun, or cannot be moved
};

int current_core();  // -1: not known

}  // namespace tessera
