// When each thread of the pool worked, for one who asks.
#pragma once

#include <chrono>
#include <vector>

namespace tessera {

struct Worked {
    int thread;
    std::chrono::steady_clock::time_point begin, end;
};

// Records every chunk that a thread executes, while the object exists. Only one at a time: a second records nothing.
class ThreadTrace {
  public:
    ThreadTrace();
    ~ThreadTrace();
    ThreadTrace(const ThreadTrace&) = delete;
    ThreadTrace& operator=(const ThreadTrace&) = delete;

    std::vector<Worked> take();             // since the last call
    static bool wanted();                   // whether one lives
    static void add(const Worked& worked);  // to the one that lives, if it still does

  private:
    std::vector<Worked> worked_;
};

}  // namespace tessera
