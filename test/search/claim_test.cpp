#include "search/claim.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Claim, PrintsRuleAndShapes) {
    auto rules = read_rules("merge: add(x, x) => mul(x, 2.0)", "test");
    ASSERT_TRUE(rules.ok());
    Claim claim{rules->front(), {{"x", Shape{symbol("M"), 3}}}};
    EXPECT_NE(to_string(claim).find("where x: [M,3]"), std::string::npos) << to_string(claim);
}

}  // namespace
}  // namespace tessera
