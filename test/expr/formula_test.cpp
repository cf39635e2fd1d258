// Sizes as exporters write them, held against fractions that are computed apart.
#include <gtest/gtest.h>

#include <cmath>

#include "expr/expr.h"

namespace tessera::formula_test {
namespace {

const Expr h = symbol("height"), n = symbol("N");

TEST(ParseFormula, KeepsFractionsUntilTheyAreRounded) {
    EXPECT_EQ(parse_formula("floor(height/2 - 1/2) + 1"), floor_div(h - 1, 2) + 1);
    EXPECT_EQ(parse_formula("floor(floor(height/2 - 1/2)/2 + 1/2)"), floor_div(floor_div(h - 1, 2) + 1, 2));
    EXPECT_EQ(parse_formula("ceiling(N/3)"), ceil_div(n, 3));
    EXPECT_EQ(parse_formula("N/2"), floor_div(n, 2));
    EXPECT_EQ(parse_formula("0.5*N"), floor_div(n, 2));
    EXPECT_EQ(parse_formula("2*N//3"), floor_div(2 * n, 3));
    EXPECT_EQ(parse_formula("N % 4"), mod(n, 4));
    EXPECT_EQ(parse_formula("Mod(N, 4)"), mod(n, 4));
    EXPECT_EQ(parse_formula("Max(1, N - 3)"), max(1, n - 3));
    EXPECT_EQ(parse_formula("Min(N, height)"), min(n, h));
    EXPECT_EQ(parse_formula("N**2 + 1"), n * n + 1);
    EXPECT_EQ(parse_formula("FloorDiv(N, 2)"), floor_div(n, 2));
    EXPECT_EQ(parse_formula("-(N - 3)*2"), 6 - 2 * n);
    EXPECT_EQ(parse_formula("floor(-1/2 + N)"), n - 1);
    EXPECT_EQ(parse_formula("N/-2 + N"), floor_div(n, 2));
}

TEST(ParseFormula, RefusesWhatItDoesNotKnow) {
    for (const char* text : {"", " ", "N +", "(N", "N)", "N M", "2N", "sqrt(N)", "N ** -1", "N/0", "1e3", "a-b?",
                             "N**99", "Mod(N/2, 3)", "Piecewise((N, N > 1))", "99999999999999999999"})
        EXPECT_FALSE(parse_formula(text).has_value()) << text;
    EXPECT_FALSE(parse_formula(std::string(500, '(') + "N" + std::string(500, ')')).has_value());
}

TEST(ParseFormula, IsExactForEverySize) {
    const auto once = parse_formula("floor(height/2 - 1/2) + 1"), thirds = parse_formula("ceiling(2*height/3 - 1/6)");
    ASSERT_TRUE(once && thirds);
    for (int64_t size = 1; size < 200; ++size) {
        const double x = double(size);
        EXPECT_EQ(evaluate_int(*once, {{"height", size}}), int64_t(std::floor(x / 2 - 0.5)) + 1) << size;
        EXPECT_EQ(evaluate_int(*thirds, {{"height", size}}), int64_t(std::ceil((4 * x - 1) / 6 - 1e-9))) << size;
    }
}

}  // namespace
}  // namespace tessera::formula_test
