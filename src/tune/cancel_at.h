// A flag for CancelScope that is set at a deadline, or soon after another flag is.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/deadline.h"

namespace tessera {

class CancelAt {
  public:
    CancelAt(const Deadline& until, const std::atomic<bool>* also) : also_(also), until_(until) {
        if (until.ever()) watcher_ = std::thread([this] { watch(); });
    }
    ~CancelAt() {
        if (!watcher_.joinable()) return;
        {
            const std::lock_guard lock(mutex_);
            done_ = true;
        }
        wake_.notify_all();
        watcher_.join();
    }
    CancelAt(const CancelAt&) = delete;
    CancelAt& operator=(const CancelAt&) = delete;

    const std::atomic<bool>* flag() const { return watcher_.joinable() ? &flag_ : also_; }

  private:
    static constexpr auto kLook = std::chrono::milliseconds(20);

    void watch() {
        std::unique_lock lock(mutex_);
        while (!done_ && !flag_) {
            flag_ = until_.passed() || (also_ && *also_);
            wake_.wait_for(lock, kLook);
        }
    }

    const std::atomic<bool>* also_;
    const Deadline until_;
    std::atomic<bool> flag_ = false;
    bool done_ = false;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::thread watcher_;
};

}  // namespace tessera
