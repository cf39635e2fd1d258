#include "base/worker_cores.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#endif

namespace tessera {

#if defined(__linux__)

namespace {

constexpr uint64_t kSliceNs = 100'000;                    // the least that Linux takes
constexpr auto kLook = std::chrono::microseconds(5);      // in which a thread that runs gets older
constexpr int kThreadClock = 6, kClockOfThreadShift = 3;  // a clock's number is made of these and the thread's

// As Linux has it since 3.14.
struct SchedulingAttributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

// The time that it ran, -1: not known.
int64_t processor_ns(int thread) {
    timespec t{};
    const auto clock = static_cast<clockid_t>((~static_cast<unsigned>(thread) << kClockOfThreadShift) | kThreadClock);
    return clock_gettime(clock, &t) == 0 ? int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec : -1;
}

const cpu_set_t* cores_of_process() {
    static cpu_set_t set;
    static const bool known = sched_getaffinity(getpid(), sizeof set, &set) == 0;
    return known ? &set : nullptr;
}

}  // namespace

int current_core() { return sched_getcpu(); }

void WorkerCores::begin() {
    // A thread with short slices gets a core that is taken at once when it is woken, and has it no longer for that.
    SchedulingAttributes wanted{.size = sizeof wanted,
                                .policy = SCHED_OTHER,
                                .flags = 0,
                                .nice = getpriority(PRIO_PROCESS, 0),
                                .priority = 0,
                                .runtime = kSliceNs,
                                .deadline = 0,
                                .period = 0};
    if (sched_getscheduler(0) == SCHED_OTHER) syscall(SYS_sched_setattr, 0, &wanted, 0);
    if (cores_of_process()) thread_.store(static_cast<int>(syscall(SYS_gettid)), std::memory_order_release);
}

bool WorkerCores::lost_its_core() const {
    const int thread = thread_.load(std::memory_order_acquire);
    const int64_t before = thread ? processor_ns(thread) : -1;
    if (before < 0) return false;
    const auto began = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - began < kLook) {
    }
    return processor_ns(thread) == before;
}

void WorkerCores::move_to(int core) const {
    const int thread = thread_.load(std::memory_order_acquire);
    if (!thread || core < 0 || core >= CPU_SETSIZE) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(core), &one);
    sched_setaffinity(thread, sizeof one, &one);
}

void WorkerCores::keep_off(int core) const {
    const int thread = thread_.load(std::memory_order_acquire);
    if (!thread) return;
    cpu_set_t others = *cores_of_process();
    if (core >= 0 && core < CPU_SETSIZE && CPU_COUNT(&others) > 1) CPU_CLR(static_cast<size_t>(core), &others);
    sched_setaffinity(thread, sizeof others, &others);
}

#else

int current_core() { return -1; }
void WorkerCores::begin() {}
bool WorkerCores::lost_its_core() const { return false; }
void WorkerCores::move_to(int) const {}
void WorkerCores::keep_off(int) const {}

#endif

}  // namespace tessera
