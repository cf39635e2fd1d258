#include "base/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
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
constexpr auto kSpin = std::chrono::microseconds(60);        // of a worker that nobody may call
constexpr auto kSpinInRun = std::chrono::microseconds(500);  // longer than one step of a run that has no work for it
constexpr auto kPatience = std::chrono::microseconds(15);    // of a caller, until it asks where its workers are
constexpr auto kLongWait = std::chrono::milliseconds(2);     // of a caller for workers that run, until it sleeps

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

// One range at a time. `turn` is odd while there may be work. A worker says that it serves the slot, then looks whether
// it is still open; the caller closes it, then waits for those who say so. So the fields of a range are written only
// while nobody reads them, and no line of memory is written by all threads.
struct alignas(128) Team::Slot {
    // The pieces that one thread begins with: the same ones in each run, whose weights it may still have in its cache.
    struct alignas(128) Lane {
        std::atomic<int64_t> next{0};
        int64_t end = 0;
    };
    std::atomic<uint32_t> turn{0};
    std::atomic<bool> taken{false};
    int number = 0;                       // from 1 on
    std::atomic<int>* callers = nullptr;  // of its pool
    Body body = nullptr;
    void* context = nullptr;
    int64_t extent = 0, pieces = 1;
    int threads = 1;   // that may take part, the caller among them
    bool all = false;  // of the pool may
    std::unique_ptr<Lane[]> lanes;
    std::mutex failing;
    std::exception_ptr failure = nullptr;    // the first that a body threw
    alignas(128) std::atomic<int> seats{0};  // taken by workers, where not all may take part

    static bool is_open(uint32_t turn) { return turn & 1; }

    void open(int64_t range, int most, bool whole_pool, Body of, void* with) {
        body = of, context = with, extent = range, threads = most, all = whole_pool;
        pieces = std::min(range, int64_t{most} * kPiecesPerThread);
        for (int i = 0; i < most; ++i) {
            lanes[size_t(i)].next.store(pieces * i / most, std::memory_order_relaxed);
            lanes[size_t(i)].end = pieces * (i + 1) / most;
        }
        seats.store(0, std::memory_order_relaxed);
        turn.fetch_add(1, std::memory_order_seq_cst);
    }
    void close() { turn.fetch_add(1, std::memory_order_seq_cst); }

    // Which thread of the team a worker is, -1: none.
    int number_of(int worker) {
        if (all) return worker;
        if (seats.load(std::memory_order_relaxed) >= threads - 1) return -1;
        const int seat = seats.fetch_add(1, std::memory_order_relaxed) + 1;
        return seat < threads ? seat : -1;
    }

    int64_t work(int thread) noexcept {
        if (!ThreadTrace::wanted()) return share(thread);
        const auto began = std::chrono::steady_clock::now();
        const int64_t done = share(thread);
        if (done > 0) ThreadTrace::add({thread, began, std::chrono::steady_clock::now()});
        return done;
    }

    // How many of the range it did: its own pieces, then what others have left.
    int64_t share(int thread) noexcept {
        int64_t done = 0;
        try {
            for (int i = 0; i < threads; ++i) {
                Lane& lane = lanes[size_t((thread + i) % threads)];
                while (lane.next.load(std::memory_order_relaxed) < lane.end) {
                    const int64_t piece = lane.next.fetch_add(1, std::memory_order_relaxed);
                    if (piece >= lane.end) break;
                    const int64_t begin = extent * piece / pieces, end = extent * (piece + 1) / pieces;
                    body(context, begin, end, thread);
                    done += end - begin;
                }
            }
        } catch (...) {
            for (int i = 0; i < threads; ++i) lanes[size_t(i)].next.store(lanes[size_t(i)].end);
            std::lock_guard lock(failing);
            if (!failure) failure = std::current_exception();
        }
        return done;
    }
};

namespace {

using Slot = Team::Slot;

// Never destroyed: its threads outlive the end of main. A process that was forked has none of them, and starts a pool
// of its own.
class Pool {
  public:
    static Pool& shared() {
        static std::atomic<Pool*> pool{nullptr};
        static std::mutex starting;  // not held by anybody while the process is forked
        if (Pool* running = pool.load(std::memory_order_acquire)) return *running;
        static const int watched = pthread_atfork([] { starting.lock(); }, [] { starting.unlock(); },
                                                  [] { pool.store(nullptr), starting.unlock(); });
        (void)watched;
        std::lock_guard lock(starting);
        if (!pool.load()) pool.store(new Pool());
        return *pool.load();
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
            if (!slots_[i].lanes) slots_[i].lanes.reset(new Slot::Lane[size_t(threads_)]);
            return &slots_[i];
        }
        return nullptr;
    }
    // To the pool it is of, which after a fork is another.
    static void give_back(Slot* slot) {
        slot->callers->fetch_sub(1, std::memory_order_relaxed);
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

    // For the slot's caller, after it was closed: until nobody serves it.
    void wait_for_workers(const Slot& slot) {
        using Clock = std::chrono::steady_clock;
        Clock::time_point began, looked;  // from the first wait on
        bool fetched = false;
        for (int i = 1; i < threads_; ++i) {
            const std::atomic<int>& serves = workers_[i].serves;
            while (serves.load(std::memory_order_seq_cst) == slot.number) {
                pause();
                const auto now = Clock::now();
                if (began == Clock::time_point()) began = looked = now;
                if (now - looked < kPatience) continue;
                const bool here = fetch_lost(slot);
                fetched |= here;
                if (here || now - began > kLongWait) serves.wait(slot.number, std::memory_order_acquire);
                looked = Clock::now();
            }
        }
        if (fetched) send_back();
    }

  private:
    struct alignas(128) Worker {
        WorkerCores cores;
        std::atomic<int> serves{0};      // a slot's number, 0: none; what futexes wait for are ints
        std::atomic<bool> moved{false};  // to a caller's core, which the caller wants back
        const Slot* last = nullptr;      // that it found nothing left in, and its turn
        uint32_t last_turn = 0;
    };

    // Brings workers that have lost their cores to the caller's. The caller then sleeps, so that they get this core.
    bool fetch_lost(const Slot& slot) {
        std::unique_lock lock(moving_, std::try_to_lock);
        if (!lock) return false;
        const int core = current_core();
        bool some = false;
        for (int i = 1; i < threads_; ++i) {
            Worker& worker = workers_[i];
            if (worker.serves.load(std::memory_order_relaxed) != slot.number || !worker.cores.lost_its_core()) continue;
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

    Pool() : threads_(usable_cores()), workers_(new Worker[static_cast<size_t>(threads_)]) {
        for (int i = 0; i < kSlots; ++i) slots_[i].number = i + 1, slots_[i].callers = &callers_;
        try {
            for (int i = 1; i < threads_; ++i) std::thread([this, i] { serve(i); }).detach();
        } catch (const std::system_error&) {
            // The system gives no more threads. Those that are missing never ask for work, which callers then do.
        }
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

    int busy() const {
        int count = 0;
        for (int i = 1; i < threads_; ++i) count += workers_[i].serves.load(std::memory_order_relaxed) != 0;
        return count;
    }

    // Helps whoever has work; true where somebody had.
    bool help(int worker) {
        Worker& self = workers_[worker];
        bool found = false;
        int top = used_.load(std::memory_order_acquire);
        for (int i = 0; i < top; ++i) {
            Slot& slot = slots_[i];
            uint32_t turn = slot.turn.load(std::memory_order_relaxed);
            if (!Slot::is_open(turn) || (self.last == &slot && self.last_turn == turn)) continue;
            // As many threads as cores: callers come first, workers are for the cores that they leave.
            const int callers = callers_.load(std::memory_order_relaxed);
            if (callers > 1 && callers + busy() >= threads_) break;
            self.serves.store(slot.number, std::memory_order_seq_cst);
            turn = slot.turn.load(std::memory_order_seq_cst);
            const int number = Slot::is_open(turn) ? slot.number_of(worker) : -1;
            if (number >= 0) found |= slot.work(number) > 0;
            self.serves.store(0, std::memory_order_seq_cst);  // before it looks whether somebody sleeps
            self.serves.notify_one();
            self.last = &slot, self.last_turn = turn;
        }
        return found;
    }

    void serve(int worker) {
        Worker& self = workers_[worker];
        self.cores.begin();
        for (;;) {
            auto idle_since = std::chrono::steady_clock::now();
            bool in_run = false;
            for (;;) {
                if (help(worker)) idle_since = std::chrono::steady_clock::now();
                if (self.moved.load(std::memory_order_relaxed)) break;
                pause();
                const auto now = std::chrono::steady_clock::now();
                const bool running = callers_.load(std::memory_order_relaxed) > 0;
                if (in_run && !running) idle_since = now;  // the next run may begin at once
                in_run = running;
                if (now - idle_since > (in_run ? kSpinInRun : kSpin)) break;
            }
            self.moved.store(false, std::memory_order_relaxed);
            uint32_t seen = signal_.load(std::memory_order_seq_cst);
            asleep_.fetch_add(1, std::memory_order_seq_cst);
            if (!help(worker)) signal_.wait(seen);
            asleep_.fetch_sub(1, std::memory_order_seq_cst);
        }
    }

    const int threads_;
    Worker* const workers_;  // from 1 on
    std::mutex moving_;
    std::atomic<int> off_{-1};  // the core that workers keep off, -1: none
    Slot slots_[kSlots];
    alignas(128) std::atomic<int> used_{0};  // slots ever taken, from the first
    std::atomic<int> callers_{0};
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
    if (slot_) Pool::give_back(slot_);
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
    Pool& pool = Pool::shared();
    const int threads = static_cast<int>(std::min<int64_t>(limit_, extent));
    slot.open(extent, threads, threads == pool.threads(), body, context);
    if (wakes) pool.wake(threads - 1);
    const auto began = std::chrono::steady_clock::now();
    const int64_t done = slot.work(0);
    if (time && done > 0) time->add(int64_t(double(nanoseconds_since(began)) * double(extent) / double(done)));
    slot.close();
    pool.wait_for_workers(slot);
    if (slot.failure) std::rethrow_exception(std::exchange(slot.failure, nullptr));
}

}  // namespace tessera
