#include "expr/expr.h"

#include <gtest/gtest.h>

#include "expr/simplify.h"

namespace tessera {
namespace {

const Expr n = symbol("N"), m = symbol("M"), k = symbol("K");

TEST(Expr, SumsAndProductsAreCanonical) {
    EXPECT_EQ(to_string(n + 1 + n), "2*N + 1");
    EXPECT_EQ(2 * n + 3 * n, 5 * n);
    EXPECT_EQ(n - n, Expr(0));
    EXPECT_EQ((n + m) * (n - m), n * n - m * m);
    EXPECT_EQ(to_string(n - m), "N - M");
    EXPECT_EQ(n * m, m * n);
}

}  // namespace
}  // namespace tessera
