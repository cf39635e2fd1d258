// The process's worker threads: one pool, sized once by the cores that the process may use, shared by all who have
// work. A caller takes part in its own work, so that nothing waits for a worker to be free.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera {

// What a range took before, on one thread; a copy starts with what is known. Those who run it at the same time share
// it.
class RangeTime {
  public:
    RangeTime() = default;
    RangeTime(const RangeTime& other) : ns_(other.ns()) {}
    RangeTime& operator=(const RangeTime& other) { return ns_.store(other.ns(), std::memory_order_relaxed), *this; }

    int64_t ns() const { return ns_.load(std::memory_order_relaxed); }  // 0: not known
    void add(int64_t ns) {
        const int64_t known = this->ns();
        ns_.store(known ? known + (ns - known) / 4 : ns, std::memory_order_relaxed);
    }

  private:
    std::atomic<int64_t> ns_{0};
};

// One caller's place in the pool, for as long as it has work: one range after the other. Making one costs little.
class Team {
  public:
    explicit Team(int limit = 0);  // threads at most, the caller among them; 0: as many as the pool has
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int threads() const { return limit_; }

    // Executes [begin, end) of the range; `thread` is below threads(), and no other call uses it concurrently. If a
    // call throws, no more chunks start, and run rethrows.
    using Body = void (*)(void* context, int64_t begin, int64_t end, int thread);
    // Hands out [0, extent) in pieces until all is done. What bodies wrote is seen by the caller. Where `time` says
    // that others would not be worth their cost, the caller works alone.
    void run(int64_t extent, Body body, void* context, RangeTime* time = nullptr);

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
    void share_out(int64_t extent, Body body, void* context, bool wakes, RangeTime* time);

    int limit_;
    Slot* slot_ = nullptr;  // none: the caller works alone
};

}  // namespace tessera
