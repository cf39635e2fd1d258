#include "api/background_compile.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/protect.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera {
namespace {

// From here on this thread, and those that it starts, get a little less of a busy core than others: what they compile
// is to serve those soon.
void lower_priority() {
#ifdef __linux__
    constexpr int kNice = 1;
    const auto thread = static_cast<id_t>(syscall(SYS_gettid));
    (void)setpriority(PRIO_PROCESS, thread, getpriority(PRIO_PROCESS, thread) + kNice);
#endif
}

}  // namespace

// All that are under way: for the end of the process, whose static objects they use, and for forks.
struct LiveCompiles {
    std::mutex mutex;
    std::vector<const BackgroundCompile*> list;

    static LiveCompiles& shared() {
        static auto* live = new LiveCompiles;  // never destroyed
        static const bool watched = (std::atexit([] { shared().stop_all(); }), watch_forks(), true);
        (void)watched;
        return *live;
    }

    void stop_all() {
        const std::lock_guard lock(mutex);
        for (const BackgroundCompile* compile : list) compile->cancelled_ = true;
        for (const BackgroundCompile* compile : list) compile->stop();
    }

    // Mutexes are free in the child, which has none of the threads.
    static void watch_forks() {
#if defined(__unix__) || defined(__APPLE__)
        pthread_atfork(
            [] {
                shared().mutex.lock();
                for (const BackgroundCompile* compile : shared().list) compile->mutex_.lock();
            },
            [] {
                for (const BackgroundCompile* compile : shared().list) compile->mutex_.unlock();
                shared().mutex.unlock();
            },
            [] {
                for (const BackgroundCompile* compile : shared().list) {
                    if (!compile->result_) {
                        (void)compile->thread_.release();
                        compile->orphaned_ = true;
                    }
                    compile->mutex_.unlock();
                }
                shared().mutex.unlock();
            });
#endif
    }
};

std::unique_ptr<BackgroundCompile> BackgroundCompile::start(Compile compile) {
    std::unique_ptr<BackgroundCompile> made(new BackgroundCompile(std::move(compile)));
    LiveCompiles& live = LiveCompiles::shared();
    const std::lock_guard all(live.mutex);
    live.list.push_back(made.get());
    const std::lock_guard lock(made->mutex_);
    made->launch();
    return made;
}

BackgroundCompile::~BackgroundCompile() {
    {
        LiveCompiles& live = LiveCompiles::shared();
        const std::lock_guard all(live.mutex);
        live.list.erase(std::remove(live.list.begin(), live.list.end(), this), live.list.end());
    }
    cancelled_ = true;
    stop();
}

void BackgroundCompile::launch() const {
    try {
        thread_ = std::make_unique<std::thread>([this] { work(); });
    } catch (const std::system_error& e) {
        result_ = Error(Code::E0408, "cannot create a thread to compile on: {}", e.what());
    }
}

void BackgroundCompile::work() const {
    lower_priority();
    auto made = protect("compile in the background", {}, [&] { return compile_(cancelled_); });
    {
        const std::lock_guard lock(mutex_);
        result_ = std::move(made);
        if (result_->ok()) ready_.store(&**result_, std::memory_order_release);
    }
    compile_ = nullptr;  // with the model
    ended_.notify_all();
}

void BackgroundCompile::stop() const {
    std::unique_ptr<std::thread> thread;
    {
        const std::lock_guard lock(mutex_);
        thread = std::move(thread_);
    }
    if (thread) thread->join();
}

const Executable* BackgroundCompile::after_fork() const {
    if (orphaned_.load(std::memory_order_relaxed)) {
        const std::lock_guard lock(mutex_);
        if (orphaned_.exchange(false)) launch();
    }
    return nullptr;
}

Status BackgroundCompile::wait() const {
    ready();
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return result_.has_value(); });
    return result_->ok() ? Status() : Status(result_->error());
}

}  // namespace tessera
