#include "expr/simplify.h"
#include "base/gcd.h"

#include <gtest/gtest.h>
#include <limits>

#include "expr/divide_within.h"
#include "random_expr.h"

namespace tessera::simplify_test {
namespace {

const Expr n = symbol("N"), m = symbol("M"), k = symbol("K");
const Expr i = index_var("i", 4), j = index_var("j", 8);
const Expr yes = int_const(1, DType::boolean), no = int_const(0, DType::boolean);

TEST(Simplify, SumsAndProducts) {
    EXPECT_EQ(2 * n + 3 * n, 5 * n);
    EXPECT_EQ(n - n, Expr(0));
    EXPECT_EQ(n * m, m * n);
    EXPECT_EQ((n + m) * (n - m), n * n - m * m);
    EXPECT_EQ((n + 1) * (n + 1) - n * n - 2 * n, Expr(1));
    EXPECT_EQ(-(n - m), m - n);
    EXPECT_EQ(n * 0, Expr(0));
}

TEST(Simplify, QuotientsDropWhatIsTooSmallToCount) {
    EXPECT_EQ(floor_div(4 * n + i, 16), floor_div(n, 4));
    EXPECT_EQ(mod(4 * n + i, 16), 4 * mod(n, 4) + i);
    EXPECT_EQ(floor_div(8 * n + 2 * i + 1, 24), floor_div(n, 3));
    EXPECT_EQ(mod(8 * n + j, 12).kind(), ExprKind::Mod);      // 8 does not divide 12, and j reaches beyond 4
    EXPECT_EQ(mod(4 * n + i + 1, 16).kind(), ExprKind::Mod);  // i + 1 may be 4
}

TEST(Simplify, DigitsMakeUpTheirNumber) {
    EXPECT_EQ(mod(n, 64) + 64 * mod(floor_div(n, 64), 3), mod(n, 192));
    EXPECT_EQ(mod(n, 64) + 64 * mod(floor_div(n, 64), 3) + 192 * floor_div(n, 192), n);
    EXPECT_EQ((floor_div(n, 12) * 3 + mod(floor_div(n, 4), 3)) * 4 + mod(n, 4), n);
}

TEST(Simplify, LongProductsAreNotExpanded) {
    Expr a = 0, b = 0;
    for (int t = 0; t < 9; ++t) {
        a = a + symbol("a" + std::to_string(t));
        b = b + symbol("b" + std::to_string(t));
    }
    Expr product = a * b;
    EXPECT_EQ(product.kind(), ExprKind::Mul);
    EXPECT_EQ(product, b * a);
    EXPECT_EQ((2 * a) * (3 * b), 6 * product);
    EXPECT_EQ(product - product, Expr(0));
    EXPECT_EQ(parse_dim(to_string(-product + 1)), 1 - product);
}

TEST(Simplify, OverflowIsLeftUnfolded) {
    Expr sum = Expr(INT64_MAX) + 1;
    EXPECT_FALSE(sum.as_int());
    EXPECT_EQ(sum - 1, Expr(INT64_MAX));
    EXPECT_FALSE(evaluate_int(sum, {}));
    EXPECT_FALSE((Expr(INT64_MAX) * 2).as_int());
    EXPECT_FALSE((-Expr(INT64_MIN)).as_int());
    EXPECT_FALSE(floor_div(INT64_MIN, -1).as_int());
    EXPECT_EQ(mod(INT64_MIN, -1), Expr(0));
    EXPECT_EQ(floor_div(INT64_MIN, 2), Expr(INT64_MIN / 2));
    EXPECT_EQ(evaluate_int(n * INT64_MAX + n * INT64_MAX, {{"N", 0}}), 0);
    EXPECT_EQ(evaluate_int(n * (int64_t{1} << 62) * 4, {{"N", 0}}), std::nullopt);
}

TEST(Simplify, QuotientsAndRemaindersComeTogether) {
    Expr x = index_var("x", 1000);
    EXPECT_EQ(7 * floor_div(x, 7) + mod(x, 7), x);
    EXPECT_EQ(15 * floor_div(x, 15) + 5 * mod(floor_div(x, 5), 3) + mod(x, 5), x);
    for (int64_t step : {1, 3, 24, 168}) {  // also where parts of x are multiples of some divisors, and not of others
        const Expr parts = step * n + x;
        EXPECT_EQ(49 * floor_div(parts, 49) + 7 * mod(floor_div(parts, 7), 7) + mod(parts, 7), parts);
    }
    EXPECT_EQ(30 * floor_div(x, 15) + 10 * mod(floor_div(x, 5), 3) + 2 * mod(x, 5) + n, 2 * x + n);
}

TEST(Simplify, FloorDivision) {
    EXPECT_EQ(floor_div(4 * n + 8, 4), n + 2);
    EXPECT_EQ(floor_div(4 * n + 2, 4), n);
    EXPECT_EQ(floor_div(n + 5, 2), floor_div(n + 1, 2) + 2);
    EXPECT_EQ(floor_div(floor_div(n, 2), 3), floor_div(n, 6));
    EXPECT_EQ(floor_div(floor_div(n - 1, 2) + 1 - 3, 2), floor_div(n - 5, 4));
    EXPECT_EQ(floor_div(6 * n + 3 * m + 4, 9), floor_div(2 * n + m + 1, 3));
    EXPECT_EQ(floor_div(4 * n + i, 4), n);
    EXPECT_EQ(floor_div(n, -2), floor_div(-n, 2));
    EXPECT_EQ(ceil_div(n, 2), floor_div(n + 1, 2));
    EXPECT_EQ(ceil_div(7, 2), Expr(4));
    EXPECT_EQ(floor_div(-7, 2), Expr(-4));
    EXPECT_EQ(floor_div(n, 0), Expr(0));
    EXPECT_EQ(floor_div(n, 1), n);
}

TEST(Simplify, DivisionByWhatMayBeZeroStays) {
    EXPECT_EQ(floor_div(n * m, m).kind(), ExprKind::FloorDiv);
    EXPECT_EQ(floor_div(n, n).kind(), ExprKind::FloorDiv);
    Expr c = max(m, 1);
    EXPECT_EQ(floor_div(n * c, c), n);
    EXPECT_EQ(floor_div(n * c + c + k, c), n + 1 + floor_div(k, c));
    EXPECT_EQ(floor_div(c, c), Expr(1));
    EXPECT_EQ(mod(n * m, m), Expr(0));
    EXPECT_EQ(mod(n * m + k, m), mod(k, m));
}

TEST(Simplify, DivisionWithinAxes) {
    const Expr n = symbol("n"), m = symbol("m"), i = index_var("i", {}), j = index_var("j", {}), k = index_var("k", {});
    const std::vector<ReduceAxis> axes = {{i, symbol("l")}, {j, n}, {k, m}};
    EXPECT_EQ(divide_within(floor_div(i * n + j, n), axes), i);
    EXPECT_EQ(divide_within(mod(i * n + j, n), axes), j);
    EXPECT_EQ(divide_within(floor_div(i * n * m + j * m + k, n * m), axes), i);
    EXPECT_EQ(divide_within(mod(i * n * m + j * m + k, n * m), axes), j * m + k);
    EXPECT_EQ(divide_within(floor_div(mod(i * n * m + j * m + k, n * m), m), axes), j);
    // k need not be below n, j + 1 may be n, and neither is known of what no axis is.
    for (const Expr& kept : {floor_div(i * n + k, n), mod(j + 1, n), mod(j + k, n), mod(j * 2, n), mod(symbol("q"), n)})
        EXPECT_EQ(divide_within(kept, axes), kept);
}

TEST(Simplify, DivisionBySums) {
    EXPECT_EQ(floor_div((n + 1) * m, n + 1), m);
    EXPECT_EQ(floor_div((n + 1) * (m + 2) * k, m + 2), (n + 1) * k);
    EXPECT_EQ(floor_div((n + 4) * m + i, n + 4), m);
    EXPECT_EQ(mod((n + 4) * m + i, n + 4), i);
    EXPECT_EQ(floor_div(n, n + 1), Expr(0));
    EXPECT_EQ(mod(n, n + 1), n);
    EXPECT_EQ(floor_div((n + m) * k, n + m).kind(), ExprKind::FloorDiv);  // both may be 0
}

TEST(Simplify, Modulo) {
    EXPECT_EQ(mod(4 * n + 7, 4), Expr(3));
    EXPECT_EQ(mod(5 * n, 4), mod(n, 4));
    EXPECT_EQ(mod(i, 4), i);
    EXPECT_EQ(mod(8 * n + i + 4, 8), i + 4);
    EXPECT_EQ(mod(4 * n + 2, 8), 4 * mod(n, 2) + 2);
    EXPECT_EQ(mod(mod(n, 12), 4), mod(n, 4));
    EXPECT_EQ(mod(n, 1), Expr(0));
    EXPECT_EQ(mod(-7, 4), Expr(1));
    EXPECT_EQ(mod(7, -4), Expr(-1));
}

TEST(Simplify, QuotientAndRemainderJoin) {
    EXPECT_EQ(4 * floor_div(n, 4) + mod(n, 4), n);
    EXPECT_EQ(m + 12 * floor_div(n + 5, 4) + 3 * mod(n + 5, 4), m + 3 * n + 15);
    EXPECT_EQ(8 * floor_div(4 * n + 2, 8) + mod(4 * n + 2, 8), 4 * n + 2);
    EXPECT_NE(4 * floor_div(n, 4) + 2 * mod(n, 4), n);
}

TEST(Simplify, MinAndMax) {
    EXPECT_EQ(min(n, n + 3), n);
    EXPECT_EQ(max(n, n + 3), n + 3);
    EXPECT_EQ(max(n, 0), n);
    EXPECT_EQ(min(i, 10), i);
    EXPECT_EQ(min(min(n, 8), min(4, m)), min(m, min(n, 4)));
    EXPECT_EQ(max(max(n, m), n), max(m, n));
    EXPECT_EQ(min(n, max(m, n)), n);
    EXPECT_EQ(clamp(i, 0, 3), i);
}

TEST(Simplify, Comparisons) {
    EXPECT_EQ(lt(n, n + 1), yes);
    EXPECT_EQ(le(n + 1, n), no);
    EXPECT_EQ(ge(n, 0), yes);
    EXPECT_EQ(lt(i, 4), yes);
    EXPECT_EQ(lt(i, 0), no);
    EXPECT_EQ(eq(n, n), yes);
    EXPECT_EQ(eq(2 * n, 5), no);
    EXPECT_EQ(eq(2 * n, 4), eq(n, 2));
    EXPECT_EQ(eq(n + 1, m + 1), eq(m, n));
    EXPECT_EQ(lt(n + 1, m + 1), lt(n, m));
    EXPECT_EQ(le(n + 1, m), lt(n, m));
    EXPECT_EQ(lt(2 * n, 7), lt(n, 4));
    EXPECT_EQ(logical_not(lt(n, m)), le(m, n));
    EXPECT_EQ(gt(n, m), lt(m, n));
    EXPECT_EQ(to_string(lt(j * 2 + i - 3, n)), "i + 2*j < N + 3");
}

TEST(Simplify, Logic) {
    Expr a = lt(n, m), b = lt(m, k);
    EXPECT_EQ(logical_and(a, yes), a);
    EXPECT_EQ(logical_and(no, a), no);
    EXPECT_EQ(logical_or(a, a), a);
    EXPECT_EQ(logical_or(a, yes), yes);
    EXPECT_EQ(logical_not(logical_not(logical_and(a, b))), logical_and(a, b));
    EXPECT_EQ(select(a, n, n), n);
    EXPECT_EQ(select(no, n, m), m);
    EXPECT_EQ(select(eq(n, 1), 1, n), n);
    EXPECT_EQ(select(ne(n, 1), n, m), select(eq(n, 1), m, n));
}

TEST(Simplify, BroadcastDimensions) {
    EXPECT_EQ(broadcast_dim(n, 1), n);
    EXPECT_EQ(broadcast_dim(1, n), n);
    EXPECT_EQ(broadcast_dim(n, n), n);
    EXPECT_EQ(broadcast_dim(n, 7), Expr(7));
    EXPECT_EQ(broadcast_dim(0, n), Expr(0));
    EXPECT_EQ(broadcast_dim(n + 2, m), n + 2);
    EXPECT_EQ(broadcast_dim(n, min(n, 512)), n);
    EXPECT_EQ(broadcast_dim(min(n, 512), n), n);
    Expr both = broadcast_dim(n, m);
    EXPECT_EQ(both, broadcast_dim(m, n));
    EXPECT_EQ(broadcast_dim(both, n), both);
    EXPECT_EQ(broadcast_dim(m, both), both);
    EXPECT_EQ(evaluate_int(both, {{"N", 1}, {"M", 5}}), 5);
    EXPECT_EQ(evaluate_int(both, {{"N", 5}, {"M", 1}}), 5);
    EXPECT_EQ(evaluate_int(both, {{"N", 0}, {"M", 1}}), 0);
}

TEST(Bounds, FollowTheOperations) {
    auto is = [](const Expr& e, std::optional<int64_t> low, std::optional<int64_t> high) {
        Bounds b = bounds(e);
        return b.low == low && b.high == high;
    };
    EXPECT_TRUE(is(n, 0, std::nullopt));
    EXPECT_TRUE(is(2 * i + j - 3, -3, 10));
    EXPECT_TRUE(is(-n, std::nullopt, 0));
    EXPECT_TRUE(is(n * m, 0, std::nullopt));
    EXPECT_TRUE(is(floor_div(j + n, 3), 0, std::nullopt));
    EXPECT_TRUE(is(floor_div(j, 3), 0, 2));
    EXPECT_TRUE(is(mod(n, 5), 0, 4));
    EXPECT_TRUE(is(mod(n, m), 0, std::nullopt));
    EXPECT_TRUE(is(min(n, 5), 0, 5));
    EXPECT_TRUE(is(max(n, 5), 5, std::nullopt));
    EXPECT_TRUE(is(select(lt(n, m), i, j), 0, 7));
    EXPECT_TRUE(is(Expr(INT64_MAX) + 1, std::nullopt, std::nullopt));
}

TEST(Simplify, DivisorsOfTheSmallestNumber) {
    const int64_t smallest = std::numeric_limits<int64_t>::min();
    EXPECT_EQ(gcd_of(smallest, 6), 2);
    EXPECT_EQ(gcd_of(-6, smallest), 2);
    EXPECT_EQ(gcd_of(smallest, 0), 1);
    EXPECT_EQ(gcd_of(smallest, smallest), 1);
    EXPECT_EQ(gcd_of(0, 0), 0);
    EXPECT_EQ(gcd_of(-4, 0), 4);
}

}  // namespace
}  // namespace tessera::simplify_test
