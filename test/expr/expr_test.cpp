#include "expr/expr.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <unordered_set>

#include "random_expr.h"

namespace tessera::expr_test {
namespace {

const Expr n = symbol("N"), m = symbol("M");

TEST(Expr, EqualityIsStructural) {
    EXPECT_EQ(symbol("N"), symbol("N"));
    EXPECT_NE(symbol("N"), symbol("M"));
    EXPECT_EQ(load(0, DType::f32, {n}), load(0, DType::f32, {n}));
    EXPECT_NE(load(0, DType::f32, {n}), load(1, DType::f32, {n}));
    EXPECT_NE(load(0, DType::f32, {n}), load(0, DType::f16, {n}));
    EXPECT_NE(constant(1, DType::f32), constant(1, DType::f64));
    EXPECT_NE(constant(1, DType::i32), Expr(1));
    EXPECT_NE(constant(0.0, DType::f32), constant(-0.0, DType::f32));
    double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(constant(nan, DType::f32), constant(nan, DType::f32));
    std::unordered_set<Expr, ExprHash> all{n + 1, 1 + n, m};
    EXPECT_EQ(all.size(), 2u);
}

TEST(Expr, SmallConstantsAreShared) {
    EXPECT_EQ(Expr(224).get(), (Expr(200) + 24).get());
    EXPECT_EQ(Expr(-16).as_int(), -16);
    EXPECT_EQ(Expr(1024).as_int(), 1024);
    EXPECT_EQ(Expr(1025).as_int(), 1025);
    EXPECT_EQ(Expr().as_int(), 0);
}

TEST(Expr, SharedNodesAreComparedOnce) {
    auto tower = [] {
        Expr e = load(0, DType::f32, {n});
        for (int i = 0; i < 200; ++i) e = e * e;
        return e;
    };
    Expr a = tower(), b = tower();
    EXPECT_EQ(a, b);
    EXPECT_EQ(compare_structure(a, b), 0);
    EXPECT_NE(a, a + 1);
    EXPECT_EQ(substitute(a, {{"N", m}}), substitute(b, {{"N", m}}));
    EXPECT_EQ(free_symbols(a), std::vector<std::string>{"N"});
    EXPECT_LT(to_string(a).size(), 8u << 20);
}

TEST(Expr, SharedBranchesAreEvaluatedOnce) {
    Expr e = n;
    for (int i = 0; i < 100; ++i) e = select(eq(e, i + 2), m, e);
    EXPECT_EQ(evaluate_int(e, {{"N", 5}, {"M", 1000}}), 1000);
    EXPECT_EQ(evaluate_int(e, {{"N", 500}, {"M", 1000}}), 500);
}

TEST(Expr, DeepChainsDoNotOverflowTheStack) {
    auto chain = [] {
        Expr e = load(0, DType::f32, {n});
        for (int i = 0; i < 300000; ++i) e = call(Fn::Exp, {e});
        return e;
    };
    Expr a = chain(), b = chain();
    EXPECT_EQ(a, b);
    EXPECT_EQ(a.node().depth, 300001u);
    EXPECT_EQ(substitute(a, {{"N", m}}).node().depth, 300001u);
    EXPECT_FALSE(to_string(a).empty());
    EXPECT_FALSE(evaluate_int(a, {}));
    std::thread([moved = std::move(a)]() mutable { moved = Expr(); }).join();
}

TEST(Expr, AnIntegerConstantTakesTheOtherSidesType) {
    Expr x = load(0, DType::f16, {});
    EXPECT_EQ((x + 1).arg(1), constant(1, DType::f16));
    EXPECT_EQ((2 * x).dtype(), DType::f16);
    EXPECT_EQ(lt(x, 0).dtype(), DType::boolean);
    EXPECT_EQ(select(lt(x, 0), 0, x).arg(1), constant(0, DType::f16));
    EXPECT_EQ((load(0, DType::u8, {}) + 300).arg(1), int_const(44, DType::u8));
}

TEST(Expr, ValuesAreFoldedOnlyWhereThatIsExact) {
    Expr x = load(0, DType::f32, {});
    EXPECT_EQ((x + 0).kind(), ExprKind::Add);  // -0.0 + 0 is 0
    EXPECT_EQ((x * 0).kind(), ExprKind::Mul);  // NaN * 0
    EXPECT_EQ((x - x).kind(), ExprKind::Sub);
    EXPECT_EQ(logical_not(lt(x, 0)).kind(), ExprKind::Not);  // NaN
    EXPECT_EQ(cast(x, DType::f32), x);
    EXPECT_EQ(cast(Expr(3), DType::f32), constant(3, DType::f32));
    EXPECT_EQ(cast(Expr(3), DType::u8), int_const(3, DType::u8));
    EXPECT_EQ(cast(Expr(300), DType::u8), int_const(44, DType::u8));
    EXPECT_EQ(cast(int_const(-1, DType::i8), DType::i64), Expr(-1));
    EXPECT_EQ(cast(int_const(200, DType::i8), DType::i64), Expr(-56));
    EXPECT_EQ(cast(Expr(5), DType::boolean), int_const(1, DType::boolean));
    EXPECT_EQ(cast(Expr(70000), DType::f16).kind(), ExprKind::Cast);
    EXPECT_EQ(cast(Expr((int64_t{1} << 24) + 1), DType::f32).kind(), ExprKind::Cast);
    EXPECT_EQ(select(int_const(1, DType::boolean), x, x + 1), x);
}

TEST(Expr, RunTimeIntegersMayWrap) {
    Expr x = load(0, DType::i64, {});
    EXPECT_EQ(x + 0, x);
    EXPECT_EQ(x - x, Expr(0));
    EXPECT_EQ(lt(x, x + 1).kind(), ExprKind::Lt);
    EXPECT_EQ(floor_div(4 * x, 4).kind(), ExprKind::FloorDiv);
    EXPECT_EQ(((x + 1) * (x + 2)).kind(), ExprKind::Mul);
    EXPECT_FALSE(bounds(min(x, 5) - 1).high);
    EXPECT_EQ(bounds(mod(x, 4) + 1).high, 4);
    EXPECT_EQ(bounds(cast(load(0, DType::u8, {}), DType::i64)).high, 255);
}

TEST(Expr, Limits) {
    EXPECT_EQ(infinity(DType::i8).node().integer, 127);
    EXPECT_EQ(infinity(DType::i8, true).node().integer, -128);
    EXPECT_EQ(infinity(DType::u4).node().integer, 15);
    EXPECT_EQ(infinity(DType::u64).node().integer, -1);
    EXPECT_EQ(infinity(DType::i64).as_int(), INT64_MAX);
    EXPECT_EQ(infinity(DType::i64, true).as_int(), INT64_MIN);
    EXPECT_EQ(infinity(DType::f16, true).node().real, -std::numeric_limits<double>::infinity());
    EXPECT_EQ(constant(-1.9, DType::i32).node().integer, -1);
    EXPECT_EQ(constant(1e30, DType::i64).as_int(), INT64_MAX);
    EXPECT_EQ(constant(-1e30, DType::i64).as_int(), INT64_MIN);
    EXPECT_EQ(constant(std::numeric_limits<double>::quiet_NaN(), DType::i64).as_int(), 0);
}

TEST(Expr, FunctionNamesRoundTrip) {
    for (int i = 0; i <= static_cast<int>(Fn::Atan2); ++i) {
        auto fn = static_cast<Fn>(i);
        EXPECT_EQ(fn_from_name(fn_name(fn)), fn);
    }
    EXPECT_EQ(fn_name(Fn::IsInf), "isinf");
    EXPECT_FALSE(fn_from_name("no such function"));
}

TEST(EvaluateInt, SaysWhatItCannotKnow) {
    EXPECT_EQ(evaluate_int(n * 2 + 1, {{"N", 3}}), 7);
    EXPECT_FALSE(evaluate_int(n * 2 + 1, {{"M", 3}}));
    EXPECT_FALSE(evaluate_int(n * n, {{"N", int64_t{1} << 40}}));
    EXPECT_FALSE(evaluate_int(load(0, DType::i64, {}), {}));
    EXPECT_EQ(evaluate_int(select(eq(n, 1), m, n), {{"N", 2}}), 2);  // M is not needed
    EXPECT_EQ(evaluate_int(floor_div(n, m), {{"N", 2}, {"M", 0}}), 0);
    EXPECT_EQ(evaluate_int(mod(n - 5, 4), {{"N", 2}}), 1);
    EXPECT_EQ(evaluate_int(rem(n - 5, 4), {{"N", 2}}), -3);
}

}  // namespace
}  // namespace tessera::expr_test
