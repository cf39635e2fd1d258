#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/graph.h"

namespace tessera::constants_test {
namespace {

TEST(Constants, EqualOnesAreShared) {
    Graph graph;
    Value* a = graph.constant(Tensor::of<float>({2}, {1, 2}));
    EXPECT_EQ(graph.constant(Tensor::of<float>({2}, {1, 2})), a);
    EXPECT_NE(graph.constant(Tensor::of<float>({2}, {1, 3})), a);
}

TEST(Constants, MoveToOtherMemoryOrGo) {
    Graph graph;
    Value* a = graph.constant(Tensor::of<float>({2}, {1, 2}), "a");
    const Tensor elsewhere = Tensor::of<float>({2}, {1, 2});
    graph.move_constant(*a, elsewhere);
    EXPECT_EQ(a->tensor()->data(), elsewhere.data());
    graph.move_constant(*a, Tensor::view(DType::f32, {2}, nullptr, nullptr));
    EXPECT_EQ(a->tensor()->data(), nullptr);
    EXPECT_EQ(a->type(), Type(DType::f32, Shape{2}));
    Value* b = graph.constant(Tensor::of<float>({2}, {1, 2}), "b");  // nobody looks at what is gone
    EXPECT_NE(b, a);
    graph.add_output(b, "y");
    EXPECT_EQ(graph.erase_unused(), 1u);
    ASSERT_EQ(graph.constants().size(), 1u);
    EXPECT_EQ(graph.constants()[0].get(), b);
}

TEST(ConstantsDeathTest, StayTheSameType) {
    Graph graph;
    Value* a = graph.constant(Tensor::of<float>({2}, {1, 2}));
    Value* x = graph.add_input("x", TensorType{DType::f32, Shape{2}});
    EXPECT_DEATH(graph.move_constant(*a, Tensor::of<float>({3}, {1, 2, 3})), "would be another");
    EXPECT_DEATH(graph.move_constant(*x, Tensor::of<float>({2}, {1, 2})), "no constant");
}

}  // namespace
}  // namespace tessera::constants_test
