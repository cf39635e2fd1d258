#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/thread_trace.h"
#include "base/usable_cores.h"

namespace tessera {
namespace {

constexpr int kSlots = 64;                             // callers at the same time that get help
constexpr int kPiecesPerThread = 8;                    // of a range, so that threads finish together
constexpr auto kSpin = std::chrono::microseconds(60);  // longer than the gap between two launches of a run

// Between two looks of one who waits: some 100 ns, which one pause of recent x86-64 processors already takes half of.
inline void pause() {
#if defined(__x86_64__)
    for (int i = 0; i < 2; ++i) __builtin_ia32_pause();
#elif defined(__aarch64__)
    for (int i = 0; i < 8; ++i) asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

// `state` is kOpen while there may be work, then how many workers may be inside, then how many are. A worker enters by
// counting itself while it is open; the fields of the range are written only while it is closed and nobody is inside.
struct alignas(128) Team::Slot {
    static constexpr uint32_t kOpen = 1u << 31, kInside = 0xffff, kMostShift = 16;
    std::atomic<uint32_t> state{0};
    std::atomic<bool> taken{false};
    Body body = nullptr;
    void* context = nullptr;
    int64_t extent = 0, piece = 1;
    std::mutex failing;
    std::exception_ptr failure = nullptr;  // the first that a body threw
    alignas(128) std::atomic<int64_t> next{0};

    void work(int thread) noexcept {
        ThreadTrace* trace = ThreadTrace::current();
        if (!trace) return (void)share(thread);
        const auto began = std::chrono::steady_clock::now();
        if (share(thread)) trace->add({thread, began, std::chrono::steady_clock::now()});
    }

    // Whether there was anything left to do.
    bool share(int thread) noexcept {
        const int64_t all = extent, size = piece;
        bool some = false;
        try {
            for (;; some = true) {
                int64_t begin = next.fetch_add(size, std::memory_order_relaxed);
                if (begin >= all) return some;
                body(context, begin, std::min(begin + size, all), thread);
            }
        } catch (...) {
            next.store(all, std::memory_order_relaxed);
            std::lock_guard lock(failing);
            if (!failure) failure = std::current_exception();
            return true;
        }
    }

    // The worker's number, or -1 where there is nothing to enter for.
    int enter() {
        uint32_t s = state.load(std::memory_order_acquire);
        while ((s & kOpen) && (s & kInside) < ((s & ~kOpen) >> kMostShift))
            if (state.compare_exchange_weak(s, s + 1, std::memory_order_acq_rel))
                return static_cast<int>(s & kInside) + 1;
        return -1;
    }

    void leave() {
        uint32_t before = state.fetch_sub(1, std::memory_order_acq_rel);
        if (!(before & kOpen) && (before & kInside) == 1) state.notify_one();
    }
};

namespace {

using Slot = Team::Slot;

// Never destroyed: its threads outlive the end of main.
class Pool {
  public:
    static Pool& shared() {
        static Pool* pool = new Pool();
        return *pool;
    }

    int threads() const { return threads_; }

    Slot* take() {
        for (int i = 0; i < kSlots; ++i) {
            bool no = false;
            if (slots_[i].taken.load(std::memory_order_relaxed) || !slots_[i].taken.compare_exchange_strong(no, true))
                continue;
            int top = used_.load(std::memory_order_relaxed);
            while (top <= i && !used_.compare_exchange_weak(top, i + 1)) {
            }
            callers_.fetch_add(1, std::memory_order_relaxed);
            return &slots_[i];
        }
        return nullptr;
    }
    void give_back(Slot* slot) {
        callers_.fetch_sub(1, std::memory_order_relaxed);
        slot->taken.store(false, std::memory_order_release);
    }

    // After a slot was opened.
    void wake(int wanted) {
        int asleep = asleep_.load(std::memory_order_seq_cst);
        if (asleep == 0) return;
        signal_.fetch_add(1, std::memory_order_seq_cst);
        if (wanted >= asleep) return signal_.notify_all();
        for (int i = 0; i < wanted; ++i) signal_.notify_one();
    }

  private:
    Pool() : threads_(usable_cores()) {
        for (int i = 1; i < threads_; ++i) std::thread([this] { serve(); }).detach();
    }

    // Helps whoever has work; true where somebody had.
    bool help() {
        bool found = false;
        int top = used_.load(std::memory_order_acquire);
        for (int i = 0; i < top; ++i) {
            Slot& slot = slots_[i];
            if (!(slot.state.load(std::memory_order_relaxed) & Slot::kOpen)) continue;
            // As many threads as cores: callers come first, workers are for the cores that they leave.
            if (callers_.load(std::memory_order_relaxed) + busy_.load(std::memory_order_relaxed) >= threads_) break;
            int number = slot.enter();
            if (number < 0) continue;
            busy_.fetch_add(1, std::memory_order_relaxed);
            slot.work(number);
            busy_.fetch_sub(1, std::memory_order_relaxed);
            slot.leave();
            found = true;
        }
        return found;
    }

    void serve() {
        for (;;) {
            auto idle_since = std::chrono::steady_clock::now();
            for (;;) {
                if (help()) idle_since = std::chrono::steady_clock::now();
                pause();
                if (std::chrono::steady_clock::now() - idle_since > kSpin) break;
            }
            uint32_t seen = signal_.load(std::memory_order_seq_cst);
            asleep_.fetch_add(1, std::memory_order_seq_cst);
            if (!help()) signal_.wait(seen);
            asleep_.fetch_sub(1, std::memory_order_seq_cst);
        }
    }

    const int threads_;
    Slot slots_[kSlots];
    alignas(128) std::atomic<int> used_{0};  // slots ever taken, from the first
    std::atomic<int> callers_{0}, busy_{0};
    alignas(128) std::atomic<uint32_t> signal_{0};
    std::atomic<int> asleep_{0};
};

}  // namespace

Team::Team(int limit) {
    if (limit == 1) {
        limit_ = 1;
        return;
    }
    Pool& pool = Pool::shared();
    limit_ = limit > 0 ? std::min(limit, pool.threads()) : pool.threads();
    if (limit_ > 1) slot_ = pool.take();
}

Team::~Team() {
    if (slot_) Pool::shared().give_back(slot_);
}

void Team::run(int64_t extent, Body body, void* context) {
    if (extent <= 0) return;
    if (!slot_ || extent == 1) return body(context, 0, extent, 0);
    Slot& slot = *slot_;
    slot.body = body;
    slot.context = context;
    slot.extent = extent;
    slot.piece = std::max<int64_t>(1, extent / (int64_t{limit_} * kPiecesPerThread));
    slot.next.store(0, std::memory_order_relaxed);
    int helpers = static_cast<int>(std::min<int64_t>(limit_ - 1, extent - 1));
    slot.state.store(Slot::kOpen | static_cast<uint32_t>(helpers) << Slot::kMostShift, std::memory_order_seq_cst);
    Pool::shared().wake(helpers);
    slot.work(0);
    uint32_t inside = slot.state.fetch_and(Slot::kInside, std::memory_order_acq_rel) & Slot::kInside;
    if (inside != 0) {
        auto began = std::chrono::steady_clock::now();
        while ((inside = slot.state.load(std::memory_order_acquire)) != 0) {
            pause();
            if (std::chrono::steady_clock::now() - began > kSpin) slot.state.wait(inside, std::memory_order_acquire);
        }
    }
    if (slot.failure) std::rethrow_exception(std::exchange(slot.failure, nullptr));
}

}  // namespace tessera
