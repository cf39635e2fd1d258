#include <gtest/gtest.h>

#include "kernel/cpu/contraction_tiles.h"
#include "kernel/sample_computes.h"

namespace tessera::default_tiles_test {
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
    EXPECT_FALSE(t.prefetch);                                          // many tiles of rows hide that the first wait
    ContractionTiles long_sum = tiles(2048, 2048, 2048, 1, avx512());  // a panel streams from the second cache
    EXPECT_EQ(long_sum.k_blocks, 1);
    EXPECT_GT(tiles(2048, 2048, 4096, 1, avx512()).k_blocks, 1);
}

// What AVX-512 reads again and again: a block of A beside two panels of B, or all of B beside a tile of A.
TEST(Tiles, WhatIsReadAgainStaysInTheSecondCache) {
    const Machine machine = avx512();
    for (int64_t size : {1024, 2048}) {
        const ContractionTiles far = tiles(size, size, size, 1, machine);
        EXPECT_LE((far.mc * far.kc + 2 * far.nr * far.kc) * 4, machine.l2_bytes * 3 / 4);
        EXPECT_TRUE(far.prefetch);
        EXPECT_FALSE(far.along_rows);
    }
    const ContractionTiles near = tiles(512, 512, 512, 1, machine);
    EXPECT_TRUE(near.along_rows);
    EXPECT_FALSE(near.prefetch);
}

// Bytes that are multiplied in whole tiles of 32 by 32.
TEST(Tiles, AreThoseOfMatrixInstructions) {
    Machine amx = avx512();
    amx.features = {"avx512vnni", "amx-int8"};
    ContractionShape shape{.m = 512, .n = 512, .k = 128, .packed_ahead = true, .words = true, .k_fills = true};
    ContractionTiles t = choose_tiles(shape, amx, 1);
    EXPECT_EQ(t.mr, 32);
    EXPECT_EQ(t.nr, 32);
    EXPECT_EQ(t.tile_words, 128);
    EXPECT_EQ(choose_tiles(shape, avx512(), 1).tile_words, 0);
    shape.k = 100;  // filled up by a little
    EXPECT_EQ(choose_tiles(shape, amx, 1).tile_words, 16);
    EXPECT_EQ(choose_tiles(shape, amx, 1).k_multiple, 16);
    shape.k_fills = false;
    EXPECT_EQ(choose_tiles(shape, amx, 1).tile_words, 0);
    shape.k = 144;
    EXPECT_EQ(choose_tiles(shape, amx, 1).tile_words, 48);
    shape.m = 4;
    EXPECT_EQ(choose_tiles(shape, amx, 1).tile_words, 0);
    shape.m_known = false;  // a variant for few rows reads the same panels
    shape.tile_rows = 4;
    EXPECT_EQ(choose_tiles(shape, amx, 1).mr, 4);
    EXPECT_EQ(choose_tiles(shape, amx, 1).nr, 32);
    EXPECT_EQ(choose_tiles(shape, amx, 1).tile_words, 0);
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

// 49 rows are 4 to 8 register tiles: what is best for one thread leaves some of many without work.
TEST(Tiles, RegisterTilesDivideAmongThreads) {
    for (auto [m, n, k] : std::vector<std::array<int64_t, 3>>{{49, 512, 4608}, {49, 2048, 512}, {196, 256, 2304}}) {
        ContractionTiles t = tiles(m, n, k, 16, avx512());
        const double share = double(m * n) / 16, each = double((t.tasks + 15) / 16 * t.mc * t.nc);
        EXPECT_LE(each, share * 1.08) << m << " " << n << ": " << t.mc << " x " << t.nc;
    }
}

TEST(Tiles, RowsThatManyTasksReadArePackedOnce) {
    EXPECT_TRUE(tiles(49, 512, 4608, 16, avx512()).a_ahead);
    EXPECT_FALSE(tiles(49, 512, 4608, 1, avx512()).a_ahead);
    EXPECT_FALSE(tiles(3136, 64, 576, 16, avx512()).a_ahead);     // each row is read by one task
    EXPECT_FALSE(tiles(49, 512, 64, 16, avx512()).a_ahead);       // sooner done than waited for
    EXPECT_FALSE(tiles(8192, 8192, 8192, 16, avx512()).a_ahead);  // far from staying in the caches
    // A panel of B that no task reads next is not fetched.
    ContractionTiles deep = tiles(49, 512, 4608, 16, avx512());
    EXPECT_TRUE(deep.nc > deep.nr || deep.k_blocks > 1 || !deep.prefetch);
}

// Sums in the same order for any number of threads: the same blocks of k, the same copy of A.
TEST(Tiles, SumsStayTheSameWhereAsked) {
    for (auto [m, n, k] :
         std::vector<std::array<int64_t, 3>>{{49, 512, 4608}, {49, 512, 2048}, {196, 256, 1024}, {128, 768, 3072}})
        for (const Machine& machine : {neon(), avx512()})
            for (int threads : {2, 7, 16, 64}) {
                ContractionShape shape;
                shape.m = m, shape.n = n, shape.k = k;
                shape.packed_ahead = shape.a_along_depth = shape.same_sums = true;
                ContractionTiles one = choose_tiles(shape, machine, 1), many = choose_tiles(shape, machine, threads);
                EXPECT_EQ(one.kc, many.kc);
                EXPECT_EQ(one.pack_a, many.pack_a);
            }
}

// A batch of unknown size may be one, rows may be few: tasks are cut from rows and columns too.
TEST(Tiles, ABatchOfOneIsSharedToo) {
    ContractionShape shape;
    shape.batch = 16;
    shape.least_batch = 1;
    shape.m = 1024;
    shape.m_known = false;
    shape.n = 402;
    shape.k = 400;
    shape.packed_ahead = true;
    for (int threads : {2, 4}) {
        const ContractionTiles t = choose_tiles(shape, neon(), threads);
        EXPECT_TRUE(t.parallel);
        for (int64_t rows : {24, 200})
            EXPECT_GE(divide_up(rows, t.mc) * divide_up(shape.n, t.nc), threads) << t.mc << " x " << t.nc;
    }
    shape.n = 2;  // little work in each row, but there may be many
    EXPECT_TRUE(choose_tiles(shape, neon(), 2).parallel);
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
    // The same where each channel has a factor, whatever its axes.
    Stage scaled = sample::conv({.n = 1, .h = 5, .w = 5, .c = 3, .filters = 4, .kernel = 3}).stages[0];
    const Expr factor = load(9, DType::f32, {scaled.axes[0].var, scaled.reduce[0].var, 0, 0});
    scaled.value = factor * scaled.value.arg(0) * scaled.value.arg(1);
    auto with_factors = match_contraction(scaled);
    ASSERT_TRUE(with_factors);
    EXPECT_EQ(with_factors->depth, (std::vector<int>{1, 2, 0}));
    EXPECT_FALSE(match(sample::depthwise(5, 5, 8, 3, 1, 1)));
    EXPECT_FALSE(match(sample::reduce_last(5, 6, ReduceOp::Sum)));
}

}  // namespace
}  // namespace tessera::default_tiles_test
