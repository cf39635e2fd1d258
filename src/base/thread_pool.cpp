#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/thread_trace.h"
#include "base/usable_cores.h"
#include "base/worker_cores.h"

namespace tessera {
namespace {

constexpr int kSlots = 64;           // callers at the same time that get help
constexpr int kPiecesPerThread = 8;  // of a range, so that threads finish together
constexpr int kFewCores = 4;
constexpr auto kSpin = std::chrono::microseconds(60);      // longer than the gap between two launches of a run
constexpr auto kPatience = std::chrono::microseconds(15);  // of a caller, until it asks where its workers are
constexpr auto kLongWait = std::chrono::milliseconds(2);   // of a caller for workers that run, until it sleeps

// Ranges that take longer on one thread are worth handing to workers that look for work, and worth waking one.
constexpr int64_t kWorthSharingNs = 3'000, kWorthWakingNs = 20'000;

int64_t nanoseconds_since(std::chrono::steady_clock::time_point began) {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
}

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

    int64_t work(int thread) noexcept {
        ThreadTrace* trace = ThreadTrace::current();
        if (!trace) return share(thread);
        const auto began = std::chrono::steady_clock::now();
        const int64_t done = share(thread);
        if (done > 0) trace->add({thread, began, std::chrono::steady_clock::now()});
        return done;
    }

    // How many of the range it did.
    int64_t share(int thread) noexcept {
        const int64_t all = extent, size = piece;
        int64_t done = 0;
        try {
            for (;;) {
                const int64_t begin = next.fetch_add(size, std::memory_order_relaxed);
                if (begin >= all) return done;
                const int64_t end = std::min(begin + size, all);
                body(context, begin, end, thread);
                done += end - begin;
            }
        } catch (...) {
            next.store(all, std::memory_order_relaxed);
            std::lock_guard lock(failing);
            if (!failure) failure = std::current_exception();
            return done;
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
        stay_off(current_core());
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
        stay_off(current_core());
        signal_.fetch_add(1, std::memory_order_seq_cst);
        if (wanted >= asleep) return signal_.notify_all();
        for (int i = 0; i < wanted; ++i) signal_.notify_one();
    }

    // For the slot's caller, who has nothing left to do while some are inside: brings those that have lost their cores
    // here. The caller then sleeps, so that they get this core.
    bool fetch_lost(const Slot& slot) {
        std::unique_lock lock(moving_, std::try_to_lock);
        if (!lock) return false;
        const int core = current_core();
        bool some = false;
        for (int i = 1; i < threads_; ++i) {
            Worker& worker = workers_[i];
            if (worker.serves.load(std::memory_order_relaxed) != &slot || !worker.cores.lost_its_core()) continue;
            worker.moved.store(true, std::memory_order_relaxed);
            worker.cores.move_to(core);
            some = true;
        }
        return some;
    }
    // After all have left.
    void send_back() {
        std::lock_guard lock(moving_);
        keep_all_off(current_core());
    }

  private:
    struct alignas(128) Worker {
        WorkerCores cores;
        std::atomic<const Slot*> serves{nullptr};
        std::atomic<bool> moved{false};  // to a caller's core, which the caller wants back
    };

    Pool() : threads_(usable_cores()), workers_(new Worker[static_cast<size_t>(threads_)]) {
        for (int i = 1; i < threads_; ++i) std::thread([this, i] { serve(workers_[i]); }).detach();
    }

    // Where no core is idle, a worker may be woken on its caller's, and wait there for the caller to end. So workers of
    // one caller keep off its core, where cores are few or one has been lost; with several callers, they may be
    // anywhere.
    void stay_off(int core) {
        if (threads_ > kFewCores && off_.load(std::memory_order_relaxed) < 0) return;
        if (callers_.load(std::memory_order_relaxed) > 1) core = -1;
        if (off_.load(std::memory_order_relaxed) == core) return;
        if (std::unique_lock lock(moving_, std::try_to_lock); lock) keep_all_off(core);
    }
    void keep_all_off(int core) {
        off_.store(core, std::memory_order_relaxed);
        for (int i = 1; i < threads_; ++i) workers_[i].cores.keep_off(core);
    }

    // Helps whoever has work; true where somebody had.
    bool help(Worker& self) {
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
            self.serves.store(&slot, std::memory_order_relaxed);
            slot.work(number);
            self.serves.store(nullptr, std::memory_order_relaxed);
            busy_.fetch_sub(1, std::memory_order_relaxed);
            slot.leave();
            found = true;
        }
        return found;
    }

    void serve(Worker& self) {
        self.cores.begin();
        for (;;) {
            auto idle_since = std::chrono::steady_clock::now();
            for (;;) {
                if (help(self)) idle_since = std::chrono::steady_clock::now();
                if (self.moved.exchange(false, std::memory_order_relaxed)) break;
                pause();
                if (std::chrono::steady_clock::now() - idle_since > kSpin) break;
            }
            uint32_t seen = signal_.load(std::memory_order_seq_cst);
            asleep_.fetch_add(1, std::memory_order_seq_cst);
            if (!help(self)) signal_.wait(seen);
            asleep_.fetch_sub(1, std::memory_order_seq_cst);
        }
    }

    const int threads_;
    Worker* const workers_;  // from 1 on
    std::mutex moving_;
    std::atomic<int> off_{-1};  // the core that workers keep off, -1: none
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

void Team::wait_for_workers() {
    using Clock = std::chrono::steady_clock;
    const auto began = Clock::now();
    auto looked = began;
    bool fetched = false;
    uint32_t inside = 0;
    while ((inside = slot_->state.load(std::memory_order_acquire)) != 0) {
        pause();
        const auto now = Clock::now();
        if (now - looked < kPatience) continue;
        const bool here = Pool::shared().fetch_lost(*slot_);
        fetched |= here;
        if (here || now - began > kLongWait) slot_->state.wait(inside, std::memory_order_acquire);
        looked = Clock::now();
    }
    if (fetched) Pool::shared().send_back();
}

void Team::run(int64_t extent, Body body, void* context, RangeTime* time) {
    if (extent <= 0) return;
    if (!slot_ || extent == 1) return body(context, 0, extent, 0);
    const int64_t expected = time ? time->ns() : 0;
    if (expected == 0 || expected > kWorthSharingNs)
        return share_out(extent, body, context, expected == 0 || expected > kWorthWakingNs, time);
    const auto began = std::chrono::steady_clock::now();
    body(context, 0, extent, 0);
    time->add(nanoseconds_since(began));
}

void Team::share_out(int64_t extent, Body body, void* context, bool wakes, RangeTime* time) {
    Slot& slot = *slot_;
    slot.body = body;
    slot.context = context;
    slot.extent = extent;
    slot.piece = std::max<int64_t>(1, extent / (int64_t{limit_} * kPiecesPerThread));
    slot.next.store(0, std::memory_order_relaxed);
    int helpers = static_cast<int>(std::min<int64_t>(limit_ - 1, extent - 1));
    slot.state.store(Slot::kOpen | static_cast<uint32_t>(helpers) << Slot::kMostShift, std::memory_order_seq_cst);
    if (wakes) Pool::shared().wake(helpers);
    const auto began = std::chrono::steady_clock::now();
    const int64_t done = slot.work(0);
    if (time && done > 0) time->add(int64_t(double(nanoseconds_since(began)) * double(extent) / double(done)));
    if ((slot.state.fetch_and(Slot::kInside, std::memory_order_acq_rel) & Slot::kInside) != 0) wait_for_workers();
    if (slot.failure) std::rethrow_exception(std::exchange(slot.failure, nullptr));
}

}  // namespace tessera
