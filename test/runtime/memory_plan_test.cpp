#include "runtime/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tessera::memory_plan_test {
namespace {

int64_t most_alive(const std::vector<Block>& blocks) {
    int64_t most = 0;
    for (int step = 0; step < 100; ++step) {
        int64_t alive = 0;
        for (const Block& b : blocks)
            if (b.first <= step && step <= b.last) alive += std::max(aligned(b.bytes), kBlockAlignment);
        most = std::max(most, alive);
    }
    return most;
}

TEST(MemoryPlan, NothingAliveTogetherOverlaps) {
    std::mt19937 random(1);
    auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int round = 0; round < 300; ++round) {
        std::vector<Block> blocks(static_cast<size_t>(below(40)));
        for (Block& b : blocks) {
            b.bytes = below(5) ? below(5000) : 0;
            b.first = below(50);
            b.last = b.first + below(6);
        }
        MemoryPlan plan = plan_memory(blocks);
        ASSERT_EQ(plan.offsets.size(), blocks.size());
        for (size_t i = 0; i < blocks.size(); ++i) {
            EXPECT_EQ(plan.offsets[i] % kBlockAlignment, 0);
            EXPECT_LE(plan.offsets[i] + blocks[i].bytes, plan.bytes);
            for (size_t j = 0; j < i; ++j) {
                if (blocks[i].last < blocks[j].first || blocks[j].last < blocks[i].first) continue;
                EXPECT_TRUE(plan.offsets[i] + std::max<int64_t>(blocks[i].bytes, 1) <= plan.offsets[j] ||
                            plan.offsets[j] + std::max<int64_t>(blocks[j].bytes, 1) <= plan.offsets[i]);
            }
        }
        EXPECT_GE(plan.bytes, most_alive(blocks));
        EXPECT_LE(plan.bytes, 2 * most_alive(blocks));
    }
}

TEST(MemoryPlan, AChainTakesTwoBlocks) {
    std::vector<Block> blocks;
    for (int i = 0; i < 20; ++i) blocks.push_back({1000, i, i + 1});
    EXPECT_EQ(plan_memory(blocks).bytes, 2 * 1024);
}

TEST(MemoryPlan, SmallOnesFillGaps) {
    EXPECT_EQ(plan_memory({{6400, 0, 1}, {640, 2, 3}, {5760, 2, 3}}).bytes, 6400);
    EXPECT_EQ(plan_memory({}).bytes, 0);
}

}  // namespace
}  // namespace tessera::memory_plan_test
