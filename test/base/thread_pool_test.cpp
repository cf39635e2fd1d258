#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "base/thread_trace.h"

namespace tessera::thread_pool_test {
namespace {

TEST(ThreadPool, EveryIndexOnce) {
    Team team;
    for (int64_t extent : {0, 1, 2, 3, 7, 100, 12345}) {
        std::vector<int> counts(extent);
        team.each(extent, [&](int64_t i, int) { ++counts[i]; });
        for (int c : counts) ASSERT_EQ(c, 1);
    }
}

TEST(ThreadPool, ThreadNumbersAreOfOneThreadAtATime) {
    Team team(4);
    EXPECT_LE(team.threads(), 4);
    std::vector<std::atomic<int>> inside(team.threads());
    for (int round = 0; round < 200; ++round)
        team.each(64, [&](int64_t, int thread) {
            ASSERT_LT(thread, team.threads());
            EXPECT_EQ(inside[thread].fetch_add(1), 0);
            inside[thread].fetch_sub(1);
        });
}

TEST(ThreadPool, OneThreadWorksInOrder) {
    Team team(1);
    int64_t expected = 0;
    team.each(1000, [&](int64_t i, int thread) {
        EXPECT_EQ(i, expected++);
        EXPECT_EQ(thread, 0);
    });
    EXPECT_EQ(expected, 1000);
}

// Many callers at once, more than there are slots, some of them inside one another.
TEST(ThreadPool, ManyCallers) {
    std::atomic<int64_t> total{0};
    std::vector<std::thread> callers;
    for (int c = 0; c < 80; ++c)
        callers.emplace_back([&] {
            Team team;
            for (int round = 0; round < 20; ++round)
                team.each(33, [&](int64_t i, int) {
                    if (i == 7) Team().each(5, [&](int64_t, int) { total += 1; });
                    total += 1;
                });
        });
    for (auto& t : callers) t.join();
    EXPECT_EQ(total, 80 * 20 * (33 + 5));
}

TEST(ThreadPool, WhatBodiesWroteIsSeen) {
    Team team;
    std::vector<double> data(1000, 1);
    for (int round = 0; round < 300; ++round) team.each(1000, [&](int64_t i, int) { data[i] += double(i % 3); });
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(data[i], 1 + 300.0 * double(i % 3));
}

TEST(ThreadPool, SleepsAndWakes) {
    for (int round = 0; round < 3; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::atomic<int> n{0};
        Team().each(100, [&](int64_t, int) { ++n; });
        EXPECT_EQ(n, 100);
    }
}

// More threads want the cores than there are: workers lose them in the middle of their pieces.
TEST(ThreadPool, OthersWantTheCoresToo) {
    std::atomic<bool> over{false};
    std::vector<std::thread> others;
    for (int i = 0; i < Team().threads(); ++i)
        others.emplace_back([&] {
            while (!over.load(std::memory_order_relaxed)) {
            }
        });
    std::vector<int64_t> counts(64);
    for (int round = 0; round < 40; ++round)
        Team().each(64, [&](int64_t i, int) {
            const auto began = std::chrono::steady_clock::now();
            while (std::chrono::steady_clock::now() - began < std::chrono::microseconds(50)) {
            }
            ++counts[size_t(i)];
        });
    over = true;
    for (auto& t : others) t.join();
    for (int64_t c : counts) EXPECT_EQ(c, 40);
}

TEST(ThreadPool, ShortRangesAreNotShared) {
    Team team;
    RangeTime time;
    std::atomic<int> others{0};
    auto run = [&] {
        auto body = [](void* context, int64_t, int64_t, int thread) {
            *static_cast<std::atomic<int>*>(context) += thread > 0;
        };
        team.run(64, body, &others, &time);
    };
    for (int round = 0; round < 100; ++round) run();
    EXPECT_GT(time.ns(), 0);
    EXPECT_LT(time.ns(), 1'000'000);
    time = RangeTime();
    time.add(1);
    EXPECT_EQ(time.ns(), 1);
    others = 0;
    run();
    EXPECT_EQ(others, 0);
}

TEST(ThreadPool, TimeOfARangeIsThatOfOneThread) {
    Team team;
    RangeTime time;
    auto body = [](void*, int64_t begin, int64_t end, int) {
        const auto began = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - began < (end - begin) * std::chrono::microseconds(50)) {
        }
    };
    team.run(64, body, nullptr, &time);
    EXPECT_GE(time.ns(), 64 * 50'000);
}

// The sanitizers start no threads in forked processes, and need more memory than those may have.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// The status of a forked process that does something; one that hangs is ended.
template <typename F>
int status_of_fork(F&& f) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(f());
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

// Two pieces that wait for one another, which takes two threads.
bool two_threads_work(Team& team) {
    std::atomic<int> came{0}, met{0};
    team.each(2, [&](int64_t, int) {
        const auto began = std::chrono::steady_clock::now();
        ++came;
        while (came < 2 && std::chrono::steady_clock::now() - began < std::chrono::seconds(5))
            std::this_thread::yield();
        met += came == 2;
    });
    return met == 2;
}

TEST(ThreadPool, ForkedProcessesHaveWorkersToo) {
    if (Team().threads() < 2) GTEST_SKIP() << "one core";
    std::atomic<int> n{0};
    Team().each(100, [&](int64_t, int) { ++n; });
    EXPECT_EQ(status_of_fork([] {
                  Team team;
                  return two_threads_work(team) ? 0 : 1;
              }),
              0);
    Team held;
    EXPECT_EQ(status_of_fork([&] {
                  std::atomic<int> n{0};
                  held.each(100, [&](int64_t, int) { ++n; });
                  Team team;
                  return n == 100 && two_threads_work(team) ? 0 : 1;
              }),
              0);
}

TEST(ThreadPool, WorksWhereThereAreNoMoreThreads) {
    EXPECT_EQ(status_of_fork([] {
                  long pages = 0;
                  std::ifstream("/proc/self/statm") >> pages;
                  const rlim_t room = rlim_t(pages) * rlim_t(sysconf(_SC_PAGESIZE)) + (1 << 20);  // less than a stack
                  const rlimit limit{room, room};
                  if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
                  std::atomic<int> n{0};
                  for (int i = 0; i < 3; ++i) Team().each(100, [&](int64_t, int) { ++n; });
                  return n == 300 ? 0 : 1;
              }),
              0);
}
#endif

// Others work while a trace ends: what they did is not added to it any more.
TEST(ThreadPool, TracesEndWhileOthersWork) {
    std::atomic<bool> over{false};
    std::thread other([&] {
        while (!over) Team().each(8, [](int64_t, int) { std::this_thread::yield(); });
    });
    for (int round = 0; round < 2000; ++round) {
        ThreadTrace trace;
        Team().each(8, [](int64_t, int) {});
        EXPECT_GE(trace.take().size(), 1U);
    }
    over = true;
    other.join();
}

}  // namespace
}  // namespace tessera::thread_pool_test
