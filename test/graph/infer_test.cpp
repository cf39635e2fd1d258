#include "graph/infer.h"

#include <gtest/gtest.h>

#include "graph/builder.h"

namespace tessera::infer_test {
namespace {

// 2^200 * N and N^(2^60) would not fit anywhere.
TEST(infer, sizes_that_grow_out_of_hand_are_left_to_the_run) {
    Graph graph;
    Builder build(graph);
    Value* doubled = graph.add_input("x", Type(DType::f32, {symbol("N")}));
    Value* squared = doubled;
    for (int i = 0; i < 200; ++i) doubled = build.concat({doubled, doubled}, 0);
    for (int i = 0; i < 60; ++i)
        squared = build.reshape(build.matmul(build.unsqueeze(squared, {1}), build.unsqueeze(squared, {0})), {-1});
    ASSERT_TRUE(build.status().ok()) << build.status().error().to_string();
    EXPECT_LT(to_string(doubled->type()).size(), 10000u);
    EXPECT_LT(to_string(squared->type()).size(), 10000u);
}

TEST(infer, contents_that_grow_out_of_hand_are_left_to_the_run) {
    Graph graph;
    Builder build(graph);
    Value* n = build.op("shape", {graph.add_input("x", Type(DType::f32, {symbol("N"), symbol("M")}))});
    for (int i = 0; i < 60; ++i) n = build.mul(n, n);
    ASSERT_TRUE(build.status().ok()) << build.status().error().to_string();
    EXPECT_FALSE(n->contents());
}

}  // namespace
}  // namespace tessera::infer_test
