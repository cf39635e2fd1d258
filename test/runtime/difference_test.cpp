#include "runtime/difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "graph/evaluate/evaluate.h"
#include "graph/wider_floats.h"
#include "tessera/model.h"

namespace tessera::test::difference_test {
namespace {

Tensor of_bits(DType dtype, std::vector<uint16_t> bits) {
    auto t = Tensor::zeros(dtype, {static_cast<int64_t>(bits.size())});
    EXPECT_TRUE(t.ok());
    std::memcpy(t->mutable_data(), bits.data(), 2 * bits.size());
    return std::move(*t);
}

// Where sums differ in their last bits, bf16 may round up here and down there.
TEST(Difference, NeighboursInBf16AreNotCounted) {
    const Tensor two = of_bits(DType::bf16, {0x4000, 0x3f80}), above = of_bits(DType::bf16, {0x4001, 0x3f80}),
                 below = of_bits(DType::bf16, {0x3fff, 0x3f80}), two_above = of_bits(DType::bf16, {0x4002, 0x3f80});
    EXPECT_EQ(relative_difference(above, two), 0);
    EXPECT_EQ(relative_difference(below, two), 0);
    EXPECT_GT(relative_difference(two_above, two), 1e-2);
    EXPECT_GT(relative_difference(of_bits(DType::f16, {0x4001}), of_bits(DType::f16, {0x4000})), 9e-4);
}

// Softmax of bf16 as the reference computes it, which rounds each step, and as it is without that.
struct Softmax {
    Tensor narrow, wide;
};
Softmax softmax_of(const Tensor& x) {
    auto model =
        Model::parse(fmt::format("graph g(x: bf16{}) {{\n  return softmax(x, axis=1)\n}}\n", to_string(x.sizes())));
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    auto narrow = model->run({{"x", x}});
    EXPECT_TRUE(narrow.ok());
    Graph graph("wide");
    std::unordered_map<const Value*, Value*> map;
    map[model->graph().inputs()[0].get()] = graph.constant(*widened(x, kHalvesToSingles));
    for (const auto& node : model->graph().nodes()) EXPECT_TRUE(add_widened(graph, *node, map, kHalvesToSingles).ok());
    graph.add_output(map.at(model->graph().outputs()[0]), "y");
    auto wide = evaluate(graph, {});
    EXPECT_TRUE(wide.ok());
    EXPECT_EQ((*wide)[0].tensor().dtype(), DType::f32);
    Tensor rounded = *Tensor::zeros(DType::bf16, x.sizes());
    for (int64_t i = 0; i < rounded.elements(); ++i) rounded.set_real(i, (*wide)[0].tensor().real_at(i));
    return {(*narrow)[0].tensor(), std::move(rounded)};
}

// A kernel that rounds nothing on the way is further from the reference than what is allowed, and right.
TEST(Difference, WhatIsNotRoundedOnTheWayIsAllowed) {
    Tensor x = *Tensor::zeros(DType::bf16, {32, 40});
    for (int64_t i = 0; i < x.elements(); ++i) x.set_real(i, std::sin(double(i) * 1.7) * 2 + 0.37 * double(i % 5));
    const auto [narrow, wide] = softmax_of(x);
    constexpr double kAllowed = 1e-3;  // of `tessera compile --check`
    EXPECT_GT(relative_difference(wide, narrow), kAllowed);
    EXPECT_EQ(relative_difference(wide, narrow, &wide), 0);
    EXPECT_EQ(relative_difference(narrow, narrow, &wide), 0);

    // Faults are found as they were: an element that was left out, rows exchanged, a sum that lacks a part.
    Tensor left_out = *Tensor::zeros(DType::bf16, x.sizes()), exchanged = *Tensor::zeros(DType::bf16, x.sizes()),
           part = *Tensor::zeros(DType::bf16, x.sizes());
    double most = 0;
    for (int64_t i = 0; i < x.elements(); ++i) most = std::max(most, wide.real_at(i));
    for (int64_t i = 0; i < x.elements(); ++i) {
        left_out.set_real(i, wide.real_at(i) > 0.9 * most ? 0 : wide.real_at(i));
        exchanged.set_real(i, wide.real_at((i + 41) % x.elements()));
        part.set_real(i, wide.real_at(i) * 1.05);
    }
    for (const Tensor* wrong : {&left_out, &exchanged, &part})
        EXPECT_GT(relative_difference(*wrong, narrow, &wide), kAllowed);
    Tensor not_a_number = left_out.reshaped(x.sizes());
    not_a_number.set_real(3, NAN);
    EXPECT_EQ(relative_difference(not_a_number, narrow, &wide), INFINITY);
}

// Where the two are far apart, of other branches of a model, say, what lies between is neither.
TEST(Difference, WhatLiesBetweenBranchesIsWrong) {
    auto of = [](double x, double y) {
        Tensor t = *Tensor::zeros(DType::f16, {2});
        t.set_real(0, x), t.set_real(1, y);
        return t;
    };
    const Tensor narrow = of(-64, 1), wide = of(64, 1);
    EXPECT_EQ(relative_difference(wide, narrow, &wide), 0);
    EXPECT_EQ(relative_difference(narrow, narrow, &wide), 0);
    EXPECT_EQ(relative_difference(of(0, 1), narrow, &wide), 1);
    EXPECT_EQ(relative_difference(of(48, 1), narrow, &wide), 0.25);
    // What is large where nothing is rounded does not make others small.
    const Tensor large = of(1000, 1), close = of(2.125, 1);
    EXPECT_EQ(relative_difference(of(1000, 1.5), of(2, 1), &large), 0.25);
    EXPECT_EQ(relative_difference(of(2.0625, 1), of(2, 1), &close), 0);
}

// What overflows 16 bits on the way need not in f32.
TEST(Difference, WhatOverflowsOnTheWayMayBeANumber) {
    const Tensor infinite = of_bits(DType::f16, {0x7c00}), nan = of_bits(DType::f16, {0x7e00}),
                 two = of_bits(DType::f16, {0x4000}), three = of_bits(DType::f16, {0x4200});
    for (const Tensor* allowed : {&infinite, &two}) {
        EXPECT_EQ(relative_difference(*allowed, infinite, &two), 0);
        EXPECT_EQ(relative_difference(*allowed, two, &infinite), 0);
    }
    EXPECT_EQ(relative_difference(two, infinite), INFINITY);
    EXPECT_EQ(relative_difference(three, infinite, &two), 0.5);
    EXPECT_EQ(relative_difference(nan, infinite, &two), INFINITY);
    EXPECT_EQ(relative_difference(nan, two, &three), INFINITY);
    EXPECT_EQ(relative_difference(nan, nan, &two), 0);
}

}  // namespace
}  // namespace tessera::test::difference_test
