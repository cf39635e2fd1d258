#include <gtest/gtest.h>

#include "kernel/contraction.h"
#include "kernel/sample_computes.h"

namespace tessera {
namespace {

Machine neon() {
    Machine m;
    m.lane_multiply = true;
    m.fma_pipes = 4;
    m.l1_bytes = 64 << 10;
    m.l2_bytes = 1 << 20;
    return m;
}

Machine avx512() {
    Machine m;
    m.vector_bytes = 64;
    m.load_broadcast = true;
    m.l1_bytes = 48 << 10;
    m.l2_bytes = 2 << 20;
    return m;
}

ContractionTiles tiles(int64_t m, int64_t n, int64_t k, int threads = 1, const Machine& machine = neon()) {
    ContractionShape shape;
    shape.m = m;
    shape.n = n;
    shape.k = k;
    shape.packed_ahead = true;
    return choose_tiles(shape, machine, threads);
}

TEST(Tiles, FillTheRegisters) {
    ContractionTiles t = tiles(1024, 1024, 1024);
    EXPECT_EQ(t.mr * t.nr / 4, 24);
    EXPECT_LE(t.mc * t.kc * 4, 1 << 20);
    EXPECT_LE(t.nr * t.kc * 4, neon().l1_bytes);
    ContractionTiles wide = tiles(1024, 1024, 1024, 1, avx512());
    EXPECT_GE(wide.mr * wide.nr / 16, 24);
    EXPECT_EQ(wide.nr % 16, 0);
    EXPECT_EQ(wide.k_blocks, 1);
    ContractionTiles deep = tiles(49, 512, 4608, 1, avx512());  // a panel of all of k is far from fitting
    EXPECT_LE(deep.nr * deep.kc * 4, avx512().l1_bytes * 3 / 2);
    EXPECT_TRUE(deep.prefetch);
    EXPECT_FALSE(t.prefetch);  // many tiles of rows hide that the first wait
}

TEST(Tiles, CountWhatIsWastedAtTheEdges) {
    for (auto [m, n] : std::vector<std::pair<int64_t, int64_t>>{{49, 512}, {3, 24}, {196, 256}, {10, 1000}}) {
        ContractionTiles t = tiles(m, n, 512);
        double computed = double((m + t.mr - 1) / t.mr * t.mr) * double((n + t.nr - 1) / t.nr * t.nr);
        EXPECT_LE(computed, double(m * n) * 1.07) << m << " " << n << ": " << t.mr << " x " << t.nr;
    }
}

TEST(Tiles, GiveEachThreadItsShare) {
    for (int threads : {2, 16})
        for (auto [m, n] :
             std::vector<std::pair<int64_t, int64_t>>{{1024, 1024}, {49, 512}, {16, 4096}, {3136, 64}, {1, 4096}}) {
            ContractionTiles t = tiles(m, n, 1024, threads);
            int64_t rounds = (t.tasks + threads - 1) / threads;
            EXPECT_TRUE(t.parallel);
            EXPECT_GE(double(t.tasks) / double(rounds * threads), 0.85) << m << " " << n << ": " << t.tasks << " tasks";
        }
    EXPECT_FALSE(tiles(8, 8, 64, 16).parallel);
}

TEST(Tiles, RowsThatAreReadOncePackNothing) {
    EXPECT_FALSE(tiles(1, 4096, 4096).pack_a);
    EXPECT_EQ(tiles(1, 4096, 4096).k_blocks, 1);
    ContractionShape fresh;
    fresh.n = fresh.k = 4096;
    EXPECT_FALSE(choose_tiles(fresh, neon(), 1).pack_b);
}

TEST(Contraction, TellsAxesApart) {
    auto match = [](const Compute& c) { return match_contraction(c.stages[0]); };
    auto mm = match(sample::matmul(3, 4, 5, false));
    ASSERT_TRUE(mm);
    EXPECT_EQ(mm->rows, (std::vector<int>{0}));
    EXPECT_EQ(mm->columns, (std::vector<int>{1}));
    EXPECT_TRUE(mm->batch.empty());
    auto batched = match(sample::batched_matmul(2, 3, 4, 5, true));
    ASSERT_TRUE(batched);
    EXPECT_EQ(batched->batch, (std::vector<int>{0}));
    // Channels last, and read along channels.
    auto conv = match(sample::conv({.n = 1, .h = 5, .w = 5, .c = 3, .filters = 4, .kernel = 3}));
    ASSERT_TRUE(conv);
    EXPECT_EQ(conv->rows, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(conv->columns, (std::vector<int>{3}));
    EXPECT_EQ(conv->depth, (std::vector<int>{1, 2, 0}));
    EXPECT_FALSE(match(sample::depthwise(5, 5, 8, 3, 1, 1)));
    EXPECT_FALSE(match(sample::reduce_last(5, 6, ReduceOp::Sum)));
}

}  // namespace
}  // namespace tessera
