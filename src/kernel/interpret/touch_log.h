// Who touched each element of global and shared memory since the last barrier (threads) or in this launch (blocks):
// finds races while a kernel runs. Unlike verify's check it sees one run alone, but is exact about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

class TouchLog {
  public:
    explicit TouchLog(size_t buffers) : elements_(buffers) {}

    void begin_launch(const char* name);  // name: what the launch consists of, blocks or iterations
    void begin_block(std::vector<int64_t> place);
    void begin_threads(std::vector<int64_t> extents);
    void end_threads();
    void pass_barrier() { ++interval_; }
    void set_thread(int64_t number) { thread_ = number; }

    // Notes it. Where another has touched the element and one of the two writes, says who did what.
    std::optional<std::string> touch(size_t buffer, bool shared, int64_t offset, bool writes);

  private:
    static constexpr int64_t kNobody = -1;
    // Of two readers, one at least is not the writer that comes next.
    struct Touchers {
        int64_t since = kNobody;  // the interval, or the launch, that the others are of
        int64_t writer = kNobody, readers[2] = {kNobody, kNobody};
        std::optional<int64_t> other(int64_t now, int64_t who, bool writes) const;  // that it must not meet
        void note(int64_t now, int64_t who, bool writes);
    };
    struct Element {
        Touchers threads, blocks;
    };

    std::string thread_text(int64_t number) const;
    std::string block_text(int64_t number) const;

    std::vector<std::vector<Element>> elements_;  // by buffer
    int64_t interval_ = 0, launch_ = 0, thread_ = 0;
    const char* name_ = "block";
    std::vector<std::vector<int64_t>> blocks_;  // of this launch; the last is running
    std::vector<int64_t> extents_;              // of the threads that run
};

}  // namespace tessera
