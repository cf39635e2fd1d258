#include "runtime/devices/cpu_device.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/thread_pool.h"

namespace tessera {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache

// All before it was done when it was recorded.
class CpuEvent : public Event {
  public:
    explicit CpuEvent(double at) : at_(at) {}
    Status wait() const override { return {}; }
    Result<double> seconds_since(const Event& earlier) const override {
        const auto* own = dynamic_cast<const CpuEvent*>(&earlier);
        CHECK(own, "an event of another device");
        return at_ - own->at_;
    }

  private:
    double at_;
};

struct RecordedLaunch {
    Launch launch;
    std::vector<void*> buffers;
    std::vector<int64_t> symbols;
};
struct RecordedCopy {
    void* to;
    const void* from;
    int64_t bytes;
};

RecordedLaunch recorded(const Launch& launch, const LaunchArguments& arguments) {
    return {launch,
            {arguments.buffers.begin(), arguments.buffers.end()},
            {arguments.symbols.begin(), arguments.symbols.end()}};
}

class CpuRecording : public Recording {
  public:
    std::vector<std::variant<RecordedLaunch, RecordedCopy>> actions;
    int64_t local_bytes = 0;  // the most of any launch
};

struct Pieces {
    const Launch& launch;
    const LaunchArguments& arguments;
    char* scratch;
    int64_t stride;

    static void run(void* self, int64_t begin, int64_t end, int thread) {
        const auto& p = *static_cast<const Pieces*>(self);
        run_range(p.launch, p.arguments, begin, end, p.scratch + thread * p.stride);
    }
};

class CpuStream : public Stream {
  public:
    explicit CpuStream(int threads) : threads_(Team(threads).threads()), scratch_(cpu_device()) {}

    Status reserve(int64_t local_bytes) override {
        if (local_bytes <= stride_) return {};
        stride_ = 0;
        TRY(scratch_.reserve(aligned(local_bytes) * threads_));
        stride_ = aligned(local_bytes);
        return {};
    }

    Status launch(const Launch& launch, const LaunchArguments& arguments) override {
        if (recording_) [[unlikely]]
            return take_down(launch, arguments);
        run(launch, arguments);
        return {};
    }

    Status copy_to_device(void* to, const void* from, int64_t bytes) override { return copy(to, from, bytes); }
    Status copy_to_host(void* to, const void* from, int64_t bytes) override { return copy(to, from, bytes); }
    Status copy_on_device(void* to, const void* from, int64_t bytes) override { return copy(to, from, bytes); }

    Status touch(const void* memory, int64_t bytes) override {
        const auto* at = static_cast<const volatile char*>(memory);
        for (int64_t i = 0; i < bytes; i += kLine) (void)at[i];
        return {};
    }

    // One thread is timed in processor time, which others on the machine do not lengthen.
    Result<std::shared_ptr<const Event>> record(bool timed) override {
        return std::make_shared<const CpuEvent>(!timed ? 0 : threads_ == 1 ? thread_seconds() : wall_seconds());
    }
    Status record(const Event&) override { return {}; }  // all is done
    Status wait(const Event& event) override { return event.wait(); }
    Status synchronize() override {
        CHECK(!recording_, "a stream that captures has nothing to wait for");
        team_.reset();
        return {};
    }

    Status begin_capture() override {
        CHECK(!recording_, "the stream captures already");
        recording_ = std::make_unique<CpuRecording>();
        return {};
    }
    Result<std::unique_ptr<Recording>> end_capture() override {
        CHECK(recording_, "the stream does not capture");
        return std::unique_ptr<Recording>(std::move(recording_));
    }
    Status replay(const Recording& recording) override {
        CHECK(!recording_, "a recording cannot be part of another");
        const auto* own = dynamic_cast<const CpuRecording*>(&recording);
        CHECK(own, "a recording of another device");
        TRY(reserve(own->local_bytes));
        for (const auto& action : own->actions) {
            if (auto* taken = std::get_if<RecordedLaunch>(&action)) {
                run(taken->launch, {taken->buffers, taken->symbols});
            } else {
                const auto& c = std::get<RecordedCopy>(action);
                TRY(copy(c.to, c.from, c.bytes));
            }
        }
        return {};
    }

    Status update(Recording& recording, size_t i, const Launch& launch, const LaunchArguments& arguments) override {
        auto* own = dynamic_cast<CpuRecording*>(&recording);
        CHECK(own, "a recording of another device");
        for (auto& action : own->actions) {
            auto* taken = std::get_if<RecordedLaunch>(&action);
            if (!taken || i-- > 0) continue;
            *taken = recorded(launch, arguments);
            own->local_bytes = std::max(own->local_bytes, launch.local_bytes);
            return {};
        }
        CHECK(false, "there is no launch {} more", i);
    }

  private:
    void run(const Launch& launch, const LaunchArguments& arguments) {
        const int64_t extent = launch.grid.x;
        if (extent <= 0) return;
        CHECK(launch.local_bytes <= stride_, "{} bytes of scratch were not reserved", launch.local_bytes);
        if (!team_) team_.emplace(threads_);
        Pieces pieces{launch, arguments, scratch_.data(), stride_};
        if (launch.spread)
            team_->run(extent, &Pieces::run, &pieces, &launch.time);
        else
            Pieces::run(&pieces, 0, extent, 0);
    }

    Status copy(void* to, const void* from, int64_t bytes) {
        if (recording_)
            recording_->actions.emplace_back(RecordedCopy{to, from, bytes});
        else if (bytes > 0)
            std::memmove(to, from, static_cast<size_t>(bytes));
        return {};
    }

    Status take_down(const Launch& launch, const LaunchArguments& arguments) {
        recording_->actions.emplace_back(recorded(launch, arguments));
        recording_->local_bytes = std::max(recording_->local_bytes, launch.local_bytes);
        return {};
    }

    const int threads_;
    std::optional<Team> team_;  // a place in the pool, from the first launch until all is waited for
    Arena scratch_;             // stride_ bytes for each thread
    int64_t stride_ = 0;
    std::unique_ptr<CpuRecording> recording_;  // while it captures
};

class CpuDevice : public Device {
  public:
    std::string_view name() const override { return "cpu"; }
    Result<std::shared_ptr<void>> allocate(int64_t bytes) override { return allocate_bytes(bytes); }
    Result<std::unique_ptr<Stream>> make_stream(int threads) override { return std::make_unique<CpuStream>(threads); }
};

}  // namespace

Device& cpu_device() {
    static CpuDevice device;
    return device;
}

}  // namespace tessera
