#include "base/thread_trace.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace tessera {
namespace {

// Threads may add to a trace while it ends in another: what they add to is chosen, and ends, under the mutex.
std::mutex& tracing() {
    static auto* mutex = new std::mutex;  // never destroyed: workers outlive the end of main
    return *mutex;
}
std::atomic<ThreadTrace*> current_trace{nullptr};

}  // namespace

ThreadTrace::ThreadTrace() {
    const std::lock_guard lock(tracing());
    if (!current_trace.load()) current_trace.store(this);
}

ThreadTrace::~ThreadTrace() {
    const std::lock_guard lock(tracing());
    if (current_trace.load() == this) current_trace.store(nullptr);
}

bool ThreadTrace::wanted() { return current_trace.load(std::memory_order_relaxed); }

void ThreadTrace::add(const Worked& worked) {
    const std::lock_guard lock(tracing());
    if (ThreadTrace* trace = current_trace.load()) trace->worked_.push_back(worked);
}

std::vector<Worked> ThreadTrace::take() {
    const std::lock_guard lock(tracing());
    return std::exchange(worked_, {});
}

}  // namespace tessera
