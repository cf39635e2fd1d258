#include <gtest/gtest.h>

#include "random_expr.h"

namespace tessera::traverse_test {
namespace {

const Expr n = symbol("N"), m = symbol("M");
const Expr i = index_var("i", std::nullopt), k = index_var("k", std::nullopt);

Expr row_sum() { return sum({{k, n}}, load(0, DType::f32, {i, k})); }

TEST(Traverse, SubstituteSimplifies) {
    EXPECT_EQ(substitute(floor_div(n + 1, 2) * m, {{"N", 7}}), 4 * m);
    EXPECT_EQ(substitute(n + m, {{"N", m}, {"M", n}}), n + m);  // all at once
    EXPECT_EQ(substitute(n, {}), n);
    Expr unrelated = floor_div(n, 2);
    EXPECT_EQ(substitute(unrelated, {{"M", 1}}).get(), unrelated.get());
}

TEST(Traverse, SubstituteKnowsBoundVariables) {
    EXPECT_EQ(to_string(substitute(row_sum(), {{"k", 3}})), "sum(k < N, x0[i, k])");
    EXPECT_EQ(to_string(substitute(row_sum(), {{"N", 3}, {"i", m}})), "sum(k < 3, x0[M, k])");
    // The outer k is not the summed one.
    EXPECT_EQ(to_string(substitute(row_sum(), {{"i", k + 1}})), "sum(k_1 < N, x0[k + 1, k_1])");
    EXPECT_EQ(to_string(substitute(row_sum() + load(1, DType::f32, {k}), {{"k", 0}})), "sum(k < N, x0[i, k]) + x1[0]");
}

TEST(Traverse, FreeSymbolsLeaveOutBoundVariables) {
    EXPECT_EQ(free_symbols(row_sum()), (std::vector<std::string>{"N", "i"}));
    EXPECT_EQ(free_symbols(n * m + n), (std::vector<std::string>{"M", "N"}));
    EXPECT_TRUE(free_symbols(3).empty());
}

TEST(Traverse, VisitSeesEachNodeOnceAndChildrenFirst) {
    Expr x = load(0, DType::f32, {i});
    Expr e = x * x + x;
    std::vector<const ExprNode*> seen;
    visit(e, [&](const Expr& v) {
        for (const Expr& a : v.args()) EXPECT_NE(std::find(seen.begin(), seen.end(), a.get()), seen.end());
        seen.push_back(v.get());
    });
    EXPECT_EQ(seen.size(), 4u);
    EXPECT_EQ(seen.back(), e.get());
}

TEST(Traverse, RewriteGoesBottomUp) {
    Expr e = row_sum() * 2;
    Expr shifted = rewrite(
        e, [](const Expr& v) { return v.is(ExprKind::Load) ? load(v.node().slot + 1, v.dtype(), v.args()) : v; });
    EXPECT_EQ(to_string(shifted), "sum(k < N, x1[i, k]) * 2");
    Expr bound = rewrite(e, [](const Expr& v) { return v == symbol("N") ? Expr(5) : v; });
    EXPECT_EQ(to_string(bound), "sum(k < 5, x0[i, k]) * 2");
    EXPECT_EQ(rewrite(e, [](const Expr& v) { return v; }).get(), e.get());
    Expr renamed = rewrite(row_sum(), [](const Expr& v) { return v == k ? index_var("l", std::nullopt) : v; });
    EXPECT_EQ(to_string(renamed), "sum(l < N, x0[i, l])");
}

TEST(Traverse, WithArgsSimplifiesAgain) {
    EXPECT_EQ(with_args(n + m, {n, n}), 2 * n);
    EXPECT_EQ(with_args(floor_div(n, 2), {4, 2}), Expr(2));
    EXPECT_EQ(with_args(row_sum(), {load(3, DType::f32, {k})}), sum({{k, n}}, load(3, DType::f32, {k})));
}

TEST(Traverse, EmptyReductionAxesAreTheValue) { EXPECT_EQ(sum({}, n), n); }

}  // namespace
}  // namespace tessera::traverse_test
