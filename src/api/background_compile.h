// Compiles an executable on a thread of its own, at low priority, while another one answers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "tessera/compile.h"

namespace tessera {

// Stops when the object is destroyed and when the process exits: sets `cancelled` and joins the thread. A forked
// process does not have the thread; it starts another one when the result is first requested.
class BackgroundCompile {
  public:
    using Compile = std::function<Result<Executable>(const std::atomic<bool>& cancelled)>;

    static std::unique_ptr<BackgroundCompile> start(Compile compile);
    ~BackgroundCompile();
    BackgroundCompile(const BackgroundCompile&) = delete;
    BackgroundCompile& operator=(const BackgroundCompile&) = delete;

    // Null: it is still compiling, or compiling failed. The executable lives as long as this object.
    const Executable* ready() const {
        const Executable* made = ready_.load(std::memory_order_acquire);
        return made ? made : after_fork();
    }
    Status wait() const;  // the error with which compiling failed

  private:
    friend struct LiveCompiles;
    explicit BackgroundCompile(Compile compile) : compile_(std::move(compile)) {}
    const Executable* after_fork() const;
    void launch() const;  // with the mutex held
    void work() const;
    void stop() const;

    mutable Compile compile_;
    mutable std::atomic<const Executable*> ready_ = nullptr;
    mutable std::atomic<bool> cancelled_ = false, orphaned_ = false;
    mutable std::mutex mutex_;  // over what follows
    mutable std::condition_variable ended_;
    mutable std::optional<Result<Executable>> result_;
    mutable std::unique_ptr<std::thread> thread_;
};

}  // namespace tessera
