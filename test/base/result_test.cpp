#include <gtest/gtest.h>

#include <optional>

#include "base/error.h"

namespace tessera {
namespace {

Result<std::optional<int>> nothing() { return std::nullopt; }

TEST(Result, OfNothingIsNoError) {
    ASSERT_TRUE(nothing().ok());
    EXPECT_FALSE(nothing()->has_value());
}

}  // namespace
}  // namespace tessera
