#include "graph/demo.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::demo_test {
namespace {

// The same bits on every machine: the sum of all weights' bits, which any other rounding would change.
TEST(demo, weights_are_the_same_everywhere) {
    auto graph = resnet50(0);
    ASSERT_TRUE(graph.ok()) << graph.error().to_string();
    uint64_t sum = 0;
    for (const auto& v : (*graph)->constants()) {
        auto bits = v->tensor()->as<uint32_t>();
        for (size_t i = 0; i < bits.size(); ++i) sum += bits[i] * (i + 1);
    }
    EXPECT_EQ(sum, 8594876491045909147u);
}

TEST(demo, weights_are_he_scaled) {
    auto graph = resnet50(7);
    ASSERT_TRUE(graph.ok());
    const Tensor& w = *(*graph)->find_value("layer4.0.conv2.weight")->tensor();
    double sum = 0, squares = 0;
    for (float v : w.as<float>()) {
        sum += v;
        squares += double(v) * v;
    }
    double n = static_cast<double>(w.elements());
    EXPECT_NEAR(sum / n, 0, 1e-4);
    EXPECT_NEAR(std::sqrt(squares / n), std::sqrt(2.0 / (512 * 9)), 1e-4);
}

TEST(demo, another_seed_gives_other_weights) {
    auto a = resnet50(1), b = resnet50(2);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_FALSE(*(*a)->find_value("fc.weight")->tensor() == *(*b)->find_value("fc.weight")->tensor());
    EXPECT_EQ(to_string((*a)->outputs()[0]->type()), "f32[N,1000]");
}

}  // namespace
}  // namespace tessera::demo_test
