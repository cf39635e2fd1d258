#include <gtest/gtest.h>

#include <optional>

#include "base/error.h"

namespace tessera::result_test {
namespace {

Result<std::optional<int>> nothing() { return std::nullopt; }

TEST(Result, OfNothingIsNoError) {
    ASSERT_TRUE(nothing().ok());
    EXPECT_FALSE(nothing()->has_value());
}

}  // namespace
}  // namespace tessera::result_test
