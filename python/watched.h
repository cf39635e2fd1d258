// Work that Python waits for and can interrupt.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "errors.h"

// Work on a thread of its own, without the GIL, while the thread that waits for it sees Ctrl-C and calls back into
// Python. Whatever either raises cancels the work, and is raised once it has stopped.
template <typename Message>
class Watched {
  public:
    const std::atomic<bool>* cancel() const { return &cancel_; }

    void tell(Message message) {
        std::lock_guard lock(mutex_);
        told_.push_back(std::move(message));
    }

    template <typename T>
    T run(const std::function<tessera::Result<T>()>& work, const std::function<void(const Message&)>& deliver) {
        std::optional<tessera::Result<T>> result;
        std::exception_ptr failed;
        std::optional<nanobind::python_error> raised;
        std::thread worker([&] {
            try {
                result.emplace(work());
            } catch (...) {
                failed = std::current_exception();
            }
            std::lock_guard lock(mutex_);
            done_ = true;
            changed_.notify_one();
        });
        for (bool done = false; !done;) {
            std::vector<Message> told;
            {
                nanobind::gil_scoped_release release;
                std::unique_lock lock(mutex_);
                changed_.wait_for(lock, kSignalsEvery, [&] { return done_; });
                done = done_;
                told.swap(told_);
            }
            try {
                if (!raised && PyErr_CheckSignals() != 0) throw nanobind::python_error();
                for (const Message& message : told)
                    if (!raised && deliver) deliver(message);
            } catch (nanobind::python_error& e) {
                raised.emplace(std::move(e));
                cancel_ = true;
            }
        }
        {
            nanobind::gil_scoped_release release;
            worker.join();
        }
        if (raised) throw std::move(*raised);
        if (failed) std::rethrow_exception(failed);
        return unwrap(std::move(*result));
    }

  private:
    static constexpr auto kSignalsEvery = std::chrono::milliseconds(50);
    std::atomic<bool> cancel_{false};
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Message> told_;
    bool done_ = false;
};
