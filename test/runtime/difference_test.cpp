#include "runtime/difference.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tessera::test {
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

}  // namespace
}  // namespace tessera::test
