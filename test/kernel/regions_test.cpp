#include "kernel/ir/regions.h"

#include <gtest/gtest.h>

namespace tessera::regions_test {
namespace {

// What fused loops of symbolic extents are taken apart into stays inside those extents.
TEST(Regions, FusedLoopsTakenApart) {
    const Expr p = symbol("P"), a = symbol("A"), b = ceil_div(symbol("N"), 96), x = index_var("x", std::nullopt);
    const Extents running{{"x", 12 * p * a * b}};
    const Expr outer = floor_div(floor_div(x, b), a);
    EXPECT_TRUE(always(lt(outer, 12 * p), running));
    EXPECT_FALSE(always(lt(outer, 12 * p - 1), running));
    EXPECT_FALSE(always(lt(outer, p), running));
    EXPECT_TRUE(always(lt(floor_div(outer, 12), p), running));
    EXPECT_TRUE(always(lt(mod(floor_div(x, b), a), a), running));
    EXPECT_TRUE(always(lt(mod(x, b), b), running));
    EXPECT_FALSE(always(lt(mod(x, b), b - 1), running));
    EXPECT_TRUE(always(le(0, outer), running));
}

// Extents that are sums, and that nothing says to be above 0: where the loops run, they are.
TEST(Regions, FusedLoopsOfSumsTakenApart) {
    const Expr p = symbol("P") - 2, q = symbol("Q") + 3, r = symbol("R") - symbol("S"),
               x = index_var("x", std::nullopt);
    const Extents running{{"x", 2 * p * q}};
    EXPECT_TRUE(always(lt(floor_div(x, p * q), 2), running));
    EXPECT_FALSE(always(lt(floor_div(x, p * q), 1), running));
    EXPECT_TRUE(always(lt(mod(floor_div(x, q), p), p), running));
    EXPECT_TRUE(always(lt(mod(x, q), q), running));
    EXPECT_TRUE(always(lt(floor_div(x, r), symbol("T")), {{"x", symbol("T") * r}}));
    EXPECT_FALSE(always(lt(floor_div(x, p), 2), {{"x", 2 * p + 1}}));
    // Both may be below 0: then quotients of what is above are not below the other.
    EXPECT_FALSE(always(lt(floor_div(x, r), p), {{"x", p * r}}));
}

TEST(Regions, NotWhereThePartsAreNotWhole) {
    const Expr p = symbol("P"), a = symbol("A"), x = index_var("x", std::nullopt);
    EXPECT_FALSE(always(lt(floor_div(x, a), p), {{"x", p * a + 1}}));
    EXPECT_FALSE(always(lt(floor_div(x, a), p), {{"x", p * symbol("B")}}));
    EXPECT_FALSE(always(lt(floor_div(x, 2 * a), p), {{"x", 3 * p * a}}));
    EXPECT_TRUE(always(lt(floor_div(x, 2 * a), p), {{"x", 2 * p * a}}));
    EXPECT_TRUE(always(lt(floor_div(x, a * a), p), {{"x", p * a * a}}));
}

}  // namespace
}  // namespace tessera::regions_test
