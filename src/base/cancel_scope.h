// Cancellation of long-running work on this thread.
#pragma once

#include <atomic>

namespace tessera {

// While one of these lives, what this thread begins ends soon after the flag is set: where it looks, with E0410.
class CancelScope {
  public:
    explicit CancelScope(const std::atomic<bool>* cancelled) : outer_(current_) { current_ = cancelled; }
    ~CancelScope() { current_ = outer_; }
    CancelScope(const CancelScope&) = delete;
    CancelScope& operator=(const CancelScope&) = delete;

    // Null if the work cannot be cancelled. Pass it on to threads that share the work.
    static const std::atomic<bool>* current() { return current_; }
    static bool cancelled() { return current_ && *current_; }

  private:
    static inline thread_local const std::atomic<bool>* current_ = nullptr;
    const std::atomic<bool>* outer_;
};

}  // namespace tessera
