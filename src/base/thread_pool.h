// The process's worker threads: one pool, sized once by the cores that the process may use, shared by all who have
// work. A caller takes part in its own work, so that nothing waits for a worker to be free.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera {

// One caller's place in the pool, for as long as it has work: one range after the other. Making one costs little.
class Team {
  public:
    explicit Team(int limit = 0);  // threads at most, the caller among them; 0: as many as the pool has
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int threads() const { return limit_; }

    // [begin, end) of the range; `thread` is below threads() and of nobody else at that time. Where one throws, no more
    // pieces are handed out, and run throws it again.
    using Body = void (*)(void* context, int64_t begin, int64_t end, int thread);
    // Hands out [0, extent) in pieces until all is done. What bodies wrote is seen by the caller.
    void run(int64_t extent, Body body, void* context);

    template <typename F>
    void each(int64_t extent, F&& f) {
        run(
            extent,
            [](void* context, int64_t begin, int64_t end, int thread) {
                F& call = *static_cast<std::remove_reference_t<F>*>(context);
                for (int64_t i = begin; i < end; ++i) call(i, thread);
            },
            &f);
    }

    struct Slot;

  private:
    int limit_;
    Slot* slot_ = nullptr;  // none: the caller works alone
};

}  // namespace tessera
