#include <gtest/gtest.h>

#include "random_expr.h"

namespace tessera::text_test {
namespace {

const Expr n = symbol("N"), m = symbol("M"), k = symbol("K");

TEST(Text, Dimensions) {
    EXPECT_EQ(to_string(n), "N");
    EXPECT_EQ(to_string(n * 2 + 1), "2*N + 1");
    EXPECT_EQ(to_string(n - m), "N - M");
    EXPECT_EQ(to_string(-n - 1), "-N - 1");
    EXPECT_EQ(to_string(1 - 2 * n), "1 - 2*N");
    EXPECT_EQ(to_string(n * m * m), "M*M*N");
    EXPECT_EQ(to_string(ceil_div(n, 2)), "floordiv(N + 1, 2)");
    EXPECT_EQ(to_string(3 * mod(n, 4)), "3*mod(N, 4)");
    EXPECT_EQ(to_string(min(n, 8)), "min(N, 8)");
    EXPECT_EQ(to_string(broadcast_dim(n, m)), "select(M == 1, N, M)");
    EXPECT_EQ(to_string(n * (n / m)), "N*(N / M)");
    EXPECT_EQ(to_string(symbol("batch size")), "`batch size`");
    EXPECT_EQ(to_string(symbol("a`\\\n")), "`a\\`\\\\\\x0a`");
    EXPECT_EQ(to_string(symbol("true")), "`true`");
    EXPECT_EQ(to_string(symbol("")), "``");
}

TEST(Text, Values) {
    Expr i = index_var("i", 3), j = index_var("j", 3);
    Expr a = load(0, DType::f32, {i, k}), b = load(1, DType::f32, {k, j});
    EXPECT_EQ(to_string(a * b), "x0[i, K] * x1[K, j]");
    EXPECT_EQ(to_string(sum({{k, n}}, a * b)), "sum(K < N, x0[i, K] * x1[K, j])");
    EXPECT_EQ(to_string(reduce_max({{k, n}, {j, 3}}, a)), "reduce_max(K < N, j < 3, x0[i, K])");
    EXPECT_EQ(to_string((a + b) * a), "(x0[i, K] + x1[K, j]) * x0[i, K]");
    EXPECT_EQ(to_string(a - (b - a)), "x0[i, K] - (x1[K, j] - x0[i, K])");
    EXPECT_EQ(to_string(a / (b * a)), "x0[i, K] / (x1[K, j] * x0[i, K])");
    EXPECT_EQ(to_string(-a), "-x0[i, K]");
    EXPECT_EQ(to_string(cast(n, DType::f32)), "f32(N)");
    EXPECT_EQ(to_string(cast_saturate(a, DType::i8)), "saturate_i8(x0[i, K])");
    EXPECT_EQ(to_string(call(Fn::Exp, {a})), "exp(x0[i, K])");
    EXPECT_EQ(to_string(a + real_const(0.5, DType::f32)), "x0[i, K] + 0.5");
    EXPECT_EQ(to_string(load(2, DType::f32, {})), "x2[]");
    EXPECT_EQ(to_string(select(logical_and(lt(i, n), logical_or(lt(n, m), eq(n, m))), a, b)),
              "select(i < N && (N < M || M == N), x0[i, K], x1[K, j])");
}

TEST(ParseDim, Accepts) {
    EXPECT_EQ(parse_dim("N"), n);
    EXPECT_EQ(parse_dim("  2 * N+1 "), 2 * n + 1);
    EXPECT_EQ(parse_dim("-(N - 3)*2"), 6 - 2 * n);
    EXPECT_EQ(parse_dim("floordiv(N + 1, 2)"), ceil_div(n, 2));
    EXPECT_EQ(parse_dim("max(N, M, 3)"), max(n, max(m, 3)));
    EXPECT_EQ(parse_dim("select(N == 1 || !(M < 2 && N != 3), M, N)"),
              select(logical_or(eq(n, 1), logical_not(logical_and(lt(m, 2), ne(n, 3)))), m, n));
    EXPECT_EQ(parse_dim("-9223372036854775808"), Expr(INT64_MIN));
    EXPECT_EQ(parse_dim("`a b`"), symbol("a b"));
    EXPECT_EQ(parse_dim("min"), symbol("min"));
    EXPECT_EQ(parse_dim("select(true, N, M)"), n);
}

TEST(ParseDim, RefusesWhatIsNotADimension) {
    for (const char* text : {"",
                             " ",
                             "N +",
                             "+",
                             "(N",
                             "N)",
                             "N M",
                             "2N",
                             "1.5",
                             "N == 1",
                             "true",
                             "9223372036854775808",
                             "foo(N)",
                             "min()",
                             "min(N,)",
                             "select(N, 1, 2)",
                             "select(N == 1, N)",
                             "floordiv(N)",
                             "f32(N)",
                             "i32(N)",
                             "N + (N == 1)",
                             "!N",
                             "-true",
                             "`a",
                             "`a\\",
                             "`\\q`",
                             "`\\x1`",
                             "x0[N]",
                             "N <",
                             "N == 1 == 2",
                             "a && b",
                             "bit_and(N, f32(N))",
                             "floordiv(i32(N), 2)",
                             "exp(N == 1)",
                             "atan2(N)",
                             "product(0, N)",
                             "product(2, i32(N))",
                             "N..",
                             "..",
                             "str(N)"}) {
        bool names_only = std::string(text) == "N..";
        EXPECT_EQ(parse_dim(text).has_value(), names_only) << text;
    }
}

TEST(ParseDim, NestingIsLimited) {
    for (const char* open : {"(", "-", "!", "abs(", "min(1,", "select(N==1,1,"}) {
        std::string text;
        for (int i = 0; i < 20000 && text.size() < 60000; ++i) text += open;
        EXPECT_FALSE(parse_dim(text));
        EXPECT_FALSE(parse_dim(text + "N"));
    }
    std::string fine(100, '(');
    EXPECT_EQ(parse_dim(fine + "N" + std::string(100, ')')), n);
    EXPECT_FALSE(parse_dim(std::string(1 << 20, ' ')));
}

TEST(ParseDim, LongSumsAreFine) {
    std::string text = "a0";
    for (int i = 1; i < 3000; ++i) text += " + a" + std::to_string(i);
    std::optional<Expr> e = parse_dim(text);
    ASSERT_TRUE(e);
    EXPECT_EQ(e->args().size(), 3000u);
    EXPECT_EQ(parse_dim(to_string(*e)), e);
}

TEST(ParseDim, SurvivesMutatedText) {
    constexpr uint64_t kSeed = 7;
    std::mt19937_64 random(kSeed);
    const std::string alphabet = "NM01 9+-*/(),<>=!&|`\\xmindfloorselect";
    for (uint64_t seed = 0; seed < 5000; ++seed) {
        RandomExpr source(kSeed + seed, {.symbols_only = true, .large_constants = true});
        std::string text = to_string(source.integer(3).canonical);
        for (uint64_t edits = 1 + random() % 4; edits > 0 && !text.empty(); --edits) {
            size_t at = random() % text.size();
            if (random() % 2)
                text[at] = alphabet[random() % alphabet.size()];
            else
                text.erase(at, 1 + random() % 3);
        }
        if (std::optional<Expr> e = parse_dim(text)) {
            EXPECT_EQ(parse_dim(to_string(*e)), e) << "seed " << seed << ": " << text;
        }
    }
}

}  // namespace
}  // namespace tessera::text_test
