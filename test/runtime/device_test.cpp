#include "runtime/devices/device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <set>

#include "backends/backend.h"
#include "base/memory.h"
#include "runtime/devices/bind_launches.h"
#include "runtime/devices/cpu_device.h"

namespace tessera::device_test {
namespace {

Device& cpu() { return cpu_device(); }

std::unique_ptr<Stream> stream_of(int threads) {
    auto stream = cpu().make_stream(threads);
    EXPECT_TRUE(stream.ok());
    return std::move(*stream);
}

Launch launch_of(LaunchFunction function, int64_t extent, bool spread = true, int64_t local_bytes = 0) {
    Launch launch;
    launch.handle = reinterpret_cast<void*>(function);
    launch.grid.x = extent;
    launch.spread = spread;
    launch.local_bytes = local_bytes;
    return launch;
}

// y[i] += x[i] + n, each element by one thread.
void add(void* const* buffers, const int64_t* symbols, int64_t begin, int64_t end, char*) {
    const auto* x = static_cast<const int64_t*>(buffers[0]);
    auto* y = static_cast<int64_t*>(buffers[1]);
    for (int64_t i = begin; i < end; ++i) y[i] += x[i] + symbols[0];
}

struct Vectors {
    explicit Vectors(size_t size) : x(size), y(size, 0) { std::iota(x.begin(), x.end(), 1); }
    std::vector<int64_t> x, y, symbols = {100};
    std::vector<void*> buffers = {x.data(), y.data()};
    LaunchArguments arguments() const { return {buffers, symbols}; }
};

TEST(Device, LaunchesEveryIterationOnce) {
    for (int threads : {1, 3}) {
        auto stream = stream_of(threads);
        for (bool spread : {false, true})
            for (int64_t extent : {0, 1, 2, 7, 10000}) {
                Vectors v(10001);
                ASSERT_TRUE(stream->launch(launch_of(&add, extent, spread), v.arguments()).ok());
                ASSERT_TRUE(stream->synchronize().ok());
                for (int64_t i = 0; i <= 10000; ++i) ASSERT_EQ(v.y[size_t(i)], i < extent ? i + 101 : 0) << extent;
            }
    }
}

// Writes all of its scratch, lets others run, and sees that it is still its own.
std::atomic<int> disturbed{0};
void use_scratch(void* const*, const int64_t* symbols, int64_t begin, int64_t end, char* scratch) {
    if (reinterpret_cast<uintptr_t>(scratch) % kBlockAlignment != 0) ++disturbed;
    auto* own = reinterpret_cast<int64_t*>(scratch);
    for (int64_t i = begin; i < end; ++i) {
        for (int64_t k = 0; k < symbols[0]; ++k) own[k] = i;
        sched_yield();
        for (int64_t k = 0; k < symbols[0]; ++k) disturbed += own[k] != i;
    }
}

TEST(Device, ScratchIsOfOneThread) {
    auto stream = stream_of(0);
    disturbed = 0;
    for (int64_t count : {1, 13, 1000}) {  // grows, and serves smaller launches again
        ASSERT_TRUE(stream->reserve(count * 8).ok());
        for (int64_t used : {count, int64_t(1)}) {
            const std::vector<int64_t> symbols = {used};
            ASSERT_TRUE(stream->launch(launch_of(&use_scratch, 500, true, used * 8), {{}, symbols}).ok());
        }
    }
    ASSERT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(disturbed, 0);
}

TEST(DeviceDeathTest, ScratchIsReservedBefore) {
    auto stream = stream_of(1);
    const std::vector<int64_t> symbols = {1};
    EXPECT_DEATH((void)stream->launch(launch_of(&use_scratch, 1, false, 64), {{}, symbols}), "not reserved");
}

TEST(Device, ReplaysWhatWasCaptured) {
    Vectors want(1000), got(1000);
    std::vector<int64_t> copy(1000, -1);
    auto stream = stream_of(2);
    auto work = [&](Vectors& v) {
        ASSERT_TRUE(stream->launch(launch_of(&add, 1000), v.arguments()).ok());
        v.symbols[0] = 7;  // arguments are taken when it is launched
        ASSERT_TRUE(stream->launch(launch_of(&add, 500, false), v.arguments()).ok());
        ASSERT_TRUE(stream->copy_on_device(copy.data(), v.y.data(), 8000).ok());
        v.symbols[0] = 100;
    };
    work(want);
    work(want);
    ASSERT_TRUE(stream->synchronize().ok());
    const std::vector<int64_t> want_copy = std::exchange(copy, std::vector<int64_t>(1000, -1));

    ASSERT_TRUE(stream->begin_capture().ok());
    work(got);
    auto recording = stream->end_capture();
    ASSERT_TRUE(recording.ok());
    EXPECT_EQ(got.y, std::vector<int64_t>(1000, 0));  // nothing has happened yet
    EXPECT_EQ(copy, std::vector<int64_t>(1000, -1));
    ASSERT_TRUE(stream->replay(**recording).ok());
    ASSERT_TRUE(stream_of(1)->replay(**recording).ok());  // any stream of the device will do
    ASSERT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(got.y, want.y);
    EXPECT_EQ(copy, want_copy);
}

TEST(Device, ReplaysWithOtherArguments) {
    Vectors one(10), two(10);
    std::vector<int64_t> copy(10);
    auto stream = stream_of(1);
    ASSERT_TRUE(stream->begin_capture().ok());
    ASSERT_TRUE(stream->launch(launch_of(&add, 10), one.arguments()).ok());
    ASSERT_TRUE(stream->copy_on_device(copy.data(), one.y.data(), 80).ok());
    ASSERT_TRUE(stream->launch(launch_of(&add, 10), one.arguments()).ok());
    auto recording = stream->end_capture();
    ASSERT_TRUE(stream->update(**recording, 1, launch_of(&add, 5), two.arguments()).ok());
    ASSERT_TRUE(stream->replay(**recording).ok());
    ASSERT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(one.y[9], 110);
    EXPECT_EQ(copy[9], 110);
    EXPECT_EQ(two.y[4], 105);
    EXPECT_EQ(two.y[5], 0);
}

TEST(Device, ReplayReservesItsScratch) {
    auto stream = stream_of(2);
    const std::vector<int64_t> symbols = {100};
    ASSERT_TRUE(stream->begin_capture().ok());
    ASSERT_TRUE(stream->launch(launch_of(&use_scratch, 50, true, 800), {{}, symbols}).ok());
    auto recording = stream->end_capture();
    disturbed = 0;
    ASSERT_TRUE(stream_of(2)->replay(**recording).ok());
    EXPECT_EQ(disturbed, 0);
}

TEST(Device, CopiesToFromAndOn) {
    auto stream = stream_of(1);
    const std::string text = "sixteen bytes it";
    auto one = *cpu().allocate(16), two = *cpu().allocate(16);
    ASSERT_TRUE(stream->copy_to_device(one.get(), text.data(), 16).ok());
    ASSERT_TRUE(stream->copy_on_device(two.get(), one.get(), 16).ok());
    std::string back(16, '?');
    ASSERT_TRUE(stream->copy_to_host(back.data(), two.get(), 15).ok());
    ASSERT_TRUE(stream->copy_to_host(back.data(), nullptr, 0).ok());
    ASSERT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(back, "sixteen bytes i?");
}

TEST(Device, EventsOrderStreams) {
    Vectors v(1000);
    auto first = stream_of(2), second = stream_of(2);
    ASSERT_TRUE(first->launch(launch_of(&add, 1000), v.arguments()).ok());
    auto event = first->record();
    ASSERT_TRUE(event.ok());
    ASSERT_TRUE(second->wait(**event).ok());
    ASSERT_TRUE(second->launch(launch_of(&add, 1000), v.arguments()).ok());
    auto last = second->record();
    ASSERT_TRUE((*last)->wait().ok());
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(v.y[size_t(i)], 2 * (i + 101));
}

// What lies between two events is timed, what lies before is not; one thread counts processor time, several the wall's.
TEST(Device, EventsAreTimed) {
    for (int threads : {1, 2}) {
        Vectors v(200'000);
        auto stream = stream_of(threads);
        auto seconds = [&](int launches) {
            auto began = stream->record(true);
            for (int i = 0; i < launches; ++i)
                EXPECT_TRUE(stream->launch(launch_of(&add, 200'000), v.arguments()).ok());
            auto ended = stream->record(true);
            EXPECT_TRUE((*ended)->wait().ok());
            auto took = (*ended)->seconds_since(**began);
            EXPECT_TRUE(took.ok());
            return *took;
        };
        seconds(1);
        EXPECT_GE(seconds(0), 0);
        EXPECT_GT(seconds(50), 0);
        ASSERT_TRUE(stream->synchronize().ok());
    }
}

TEST(Device, TouchingChangesNothing) {
    auto stream = stream_of(1);
    std::string text(1000, 'x');
    ASSERT_TRUE(stream->touch(text.data(), 1000).ok());
    ASSERT_TRUE(stream->touch(nullptr, 0).ok());
    ASSERT_TRUE(stream->synchronize().ok());
    EXPECT_EQ(text, std::string(1000, 'x'));
}

TEST(Device, IsFoundByItsTarget) {
    for (const char* target : {"host", "x86_64-avx2", "sm_90"}) EXPECT_EQ(*device_for(target), &cpu());
    EXPECT_EQ(device_for("cuda:9999").error().code(), Code::E0701);
    EXPECT_FALSE(cpu().room());  // its memory is the process's
    EXPECT_GT(cpu().caches().all, cpu().caches().near);
}

TEST(Device, MemoryIsOfTheBudget) {
    const int64_t before = memory_in_use(), limit = memory_limit();
    {
        Arena arena(cpu());
        EXPECT_EQ(memory_in_use(), before);
        ASSERT_TRUE(arena.reserve(1 << 20).ok());
        const char* data = arena.data();
        EXPECT_GE(memory_in_use(), before + (1 << 20));
        ASSERT_TRUE(arena.reserve(1000).ok());  // has it already
        EXPECT_EQ(arena.data(), data);
        set_memory_limit(memory_in_use() + 1000);
        const Status failed = arena.reserve(8 << 20);
        set_memory_limit(limit);
        ASSERT_FALSE(failed.ok());
        EXPECT_EQ(failed.error().code(), Code::E0408);
        ASSERT_TRUE(arena.reserve(10).ok());
        EXPECT_NE(arena.data(), nullptr);
    }
    EXPECT_EQ(memory_in_use(), before);
}

TEST(BindLaunches, FollowsTheSymbols) {
    CompiledKernel kernel;
    KernelLaunch open;
    open.symbol = "k_0";
    open.function = &add;
    open.extent = symbol("n") * 2;
    open.scratch_bytes = symbol("n") + 60;
    open.parallel = true;
    kernel.launches = {open};
    auto launches = bind_launches(kernel, {{"n", 5}});
    ASSERT_TRUE(launches.ok());
    ASSERT_EQ(launches->size(), 1u);
    EXPECT_EQ((*launches)[0].handle, reinterpret_cast<void*>(&add));
    EXPECT_EQ((*launches)[0].grid.x, 10);
    EXPECT_EQ((*launches)[0].local_bytes, 128);
    EXPECT_TRUE((*launches)[0].spread);
    EXPECT_EQ(most_local_bytes(*launches), 128);
    EXPECT_EQ(bind_launches(kernel, {}).error().code(), Code::E0108);
}

}  // namespace
}  // namespace tessera::device_test
