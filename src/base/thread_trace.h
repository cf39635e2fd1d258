// When each thread of the pool worked, for one who asks.
#pragma once

#include <chrono>
#include <mutex>
#include <vector>

namespace tessera {

struct Worked {
    int thread;
    std::chrono::steady_clock::time_point begin, end;
};

// While one lives, every share that a thread takes of a range is kept. One at a time: a second keeps nothing.
class ThreadTrace {
  public:
    ThreadTrace();
    ~ThreadTrace();
    ThreadTrace(const ThreadTrace&) = delete;
    ThreadTrace& operator=(const ThreadTrace&) = delete;

    std::vector<Worked> take();  // since the last call
    void add(const Worked& worked);
    static ThreadTrace* current();

  private:
    std::mutex mutex_;
    std::vector<Worked> worked_;
};

}  // namespace tessera
