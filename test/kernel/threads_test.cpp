// Properties of verify and the interpreter over random kernels of blocks and threads.
#include <gtest/gtest.h>

#include "kernel/ir/races.h"
#include "kernel/random_threads.h"

namespace tessera::threads_test {
namespace {

using Races = InterpretOptions::Races;

constexpr uint64_t kKernels = 300;

// TESSERA_COUNT: more of them.
uint64_t kernel_count() {
    const char* many = std::getenv("TESSERA_COUNT");
    return many ? std::strtoull(many, nullptr, 10) : kKernels;
}

RandomKernelOptions few_nests(uint64_t seed) { return {.nests = 1 + static_cast<int>(seed % 2), .depth = 2}; }

// What a run finds: a race, or nothing. Other errors end the test.
std::string race_of(const Kernel& kernel, const RandomKernel& r, bool backwards) {
    std::vector<Tensor> buffers = copies(r.buffers);
    Status status = interpret(kernel, buffers, r.symbols, {.backwards = backwards, .races = Races::Find});
    if (status.ok()) return "";
    const bool outside = status.error().code() == Code::E0406;  // an index that was changed
    EXPECT_TRUE(outside || status.error().message().starts_with("a race")) << status.error().to_string();
    return outside ? "" : status.error().to_string();
}

size_t count_where(const Stmt& s, const std::function<bool(const Stmt&)>& holds) {
    size_t count = 0;
    visit(s, [&](const Stmt& x) { count += holds(x); });
    return count;
}

// f of the statement that is the n-th for which a condition holds.
Stmt change_one(const Stmt& s, size_t n, const std::function<bool(const Stmt&)>& holds,
                const std::function<Stmt(const Stmt&)>& f) {
    return mutate(s, [&](const Stmt& x) { return holds(x) && n-- == 0 ? f(x) : x; });
}

bool is_parallel(const Stmt& s) {
    const For* loop = s->as<For>();
    return loop && loop->kind == LoopKind::Parallel;
}

TEST(RandomThreads, AreVerifiedAndReadBack) {
    size_t barriers = 0;
    for (uint64_t seed = 0; seed < kernel_count(); ++seed) {
        RandomKernel r = random_threads(seed, few_nests(seed));
        const std::string text = to_string(r.kernel);
        SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + text);
        Status status = verify(r.kernel);
        ASSERT_TRUE(status.ok()) << status.error().to_string();
        auto again = parse_kernels(text);
        ASSERT_TRUE(again.ok()) << again.error().to_string();
        ASSERT_EQ(to_string((*again)[0]), text);
        barriers += count_where(r.kernel.body, is_barrier);
    }
    EXPECT_GT(barriers, kKernels);
}

TEST(RandomThreads, MeanTheSameInAnyOrderAndDoNotRace) {
    for (uint64_t seed = 0; seed < kernel_count(); ++seed) {
        RandomKernel r = random_threads(seed, few_nests(seed));
        SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + to_string(r.kernel));
        std::vector<Tensor> forwards = copies(r.buffers), backwards = copies(r.buffers);
        Status status = interpret(r.kernel, forwards, r.symbols);
        ASSERT_TRUE(status.ok()) << status.error().to_string();
        ASSERT_TRUE(interpret(r.kernel, backwards, r.symbols, {.backwards = true}).ok());
        ASSERT_EQ(first_difference(forwards, backwards), "");
        for (bool back : {false, true}) ASSERT_EQ(race_of(r.kernel, r, back), "");
    }
}

// What verify accepts, the interpreter finds no race in: with one barrier less, or one index of a store changed.
TEST(RandomThreads, WhatIsAcceptedDoesNotRace) {
    size_t racy = 0, accepted = 0, refused = 0;
    std::mt19937_64 random(7);
    auto changed = [&](const RandomKernel& r, const Kernel& kernel) {
        SCOPED_TRACE(to_string(kernel));
        if (!verify_statements(kernel).ok()) return;
        const bool fine = verify(kernel).ok();
        ++(fine ? accepted : refused);
        for (bool back : {false, true}) {
            const std::string race = race_of(kernel, r, back);
            racy += !race.empty();
            if (fine) {
                ASSERT_EQ(race, "");
            }
        }
    };
    for (uint64_t seed = 0; seed < kernel_count(); ++seed) {
        const RandomKernel r = random_threads(seed, few_nests(seed));
        SCOPED_TRACE("seed " + std::to_string(seed));
        Kernel kernel = r.kernel;
        if (size_t barriers = count_where(kernel.body, is_barrier)) {
            kernel.body =
                change_one(r.kernel.body, random() % barriers, is_barrier, [](const Stmt&) -> Stmt { return nullptr; });
            changed(r, kernel);
        }
        auto is_store = [&](const Stmt& s) {
            const Store* to = s->as<Store>();
            return to && !to->to.indices.empty();
        };
        if (count_where(r.kernel.body, is_parallel)) continue;  // verify knows less of those
        const size_t stores = count_where(r.kernel.body, is_store);
        if (stores == 0) continue;
        kernel.body = change_one(r.kernel.body, random() % stores, is_store, [&](const Stmt& s) {
            Store to = *s->as<Store>();
            Expr& index = to.to.indices[random() % to.to.indices.size()];
            switch (random() % 4) {
                case 0: index = floor_div(index, 2); break;
                case 1: index = index + 1; break;
                case 2: index = 0; break;
                default: index = mod(index * 3, 5); break;
            }
            return make_stmt(to);
        });
        changed(r, kernel);
        if (HasFatalFailure()) return;
    }
    EXPECT_GT(racy, kKernels / 4);
    EXPECT_GT(accepted, kKernels / 10);
    EXPECT_GT(refused, kKernels / 4);
}

}  // namespace
}  // namespace tessera::threads_test
