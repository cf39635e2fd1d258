#include "base/thread_trace.h"

#include <atomic>
#include <utility>

namespace tessera {
namespace {

std::atomic<ThreadTrace*> current_trace{nullptr};

}  // namespace

ThreadTrace::ThreadTrace() {
    ThreadTrace* none = nullptr;
    current_trace.compare_exchange_strong(none, this);
}

ThreadTrace::~ThreadTrace() {
    ThreadTrace* own = this;
    current_trace.compare_exchange_strong(own, nullptr);
}

ThreadTrace* ThreadTrace::current() { return current_trace.load(std::memory_order_acquire); }

void ThreadTrace::add(const Worked& worked) {
    const std::lock_guard lock(mutex_);
    worked_.push_back(worked);
}

std::vector<Worked> ThreadTrace::take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(worked_, {});
}

}  // namespace tessera
