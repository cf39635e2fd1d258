#include "graph/ops/conv_tiles.h"

#include <gtest/gtest.h>

#include <array>

#include "graph/builder.h"

namespace tessera::conv_tiles_test {
namespace {

// Sides of the tiles that a convolution with such a kernel gets unasked; zeros where it gets none.
std::array<int64_t, 2> sides(int64_t height, int64_t width) {
    Graph graph;
    Builder build(graph);
    Value* x = graph.add_input("x", Type(DType::f32, {1, 64, 32, 32}));
    Value* w = graph.add_input("w", Type(DType::f32, {64, 64, height, width}));
    Value* y = build.op("conv", {x, w});
    EXPECT_TRUE(build.status().ok()) << build.status().error().to_string();
    auto tiles = conv_tiles(*y->node());
    return tiles ? std::array{tiles->axes[0].side, tiles->axes[1].side} : std::array<int64_t, 2>{};
}

TEST(conv_tiles, few_points_along_two_axes_and_more_along_one) {
    using Sides = std::array<int64_t, 2>;
    EXPECT_EQ(sides(3, 3), (Sides{4, 4}));
    EXPECT_EQ(sides(5, 5), (Sides{2, 2}));
    EXPECT_EQ(sides(1, 3), (Sides{1, 4}));
    EXPECT_EQ(sides(1, 7), (Sides{1, 4}));
    EXPECT_EQ(sides(9, 1), (Sides{2, 1}));
    EXPECT_EQ(sides(1, 1), (Sides{}));
    EXPECT_EQ(sides(7, 7), (Sides{}));
    EXPECT_EQ(sides(1, 11), (Sides{}));
}

}  // namespace
}  // namespace tessera::conv_tiles_test
