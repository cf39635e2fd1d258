#include "discover/claim/claim.h"
#include "rewrite/refute/refute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::claim_test {
namespace {

using testing::HasSubstr;

Claim claim_of(const char* text) {
    Result<Claim> claim = read_claim(text);
    EXPECT_TRUE(claim.ok()) << claim.error().to_string();
    return claim.ok() ? *claim : Claim{};
}

TEST(Claim, PrintsRuleAndShapes) {
    Claim claim = claim_of("merge: add(x, x) => mul(x, 2.0) where x: [M,3]");
    EXPECT_THAT(to_string(claim), HasSubstr("where x: [M,3]"));
    EXPECT_EQ(to_string(claim_of(to_string(claim).c_str())), to_string(claim));
}

TEST(Claim, RuleSaysTheShapes) {
    std::string text =
        to_string(to_rule(claim_of("dist [reassociates, proved]: matmul(x, add(y, z)) => add(matmul(x, y), matmul(x, "
                                   "z)) where x: [M,K], y: [K,N], z: [K,N]")));
    EXPECT_THAT(text, HasSubstr("[reassociates, proved]"));
    EXPECT_THAT(text, HasSubstr("rank(x) == 2"));
    EXPECT_THAT(text, HasSubstr("same_dims(z, y)"));  // broadcasting would allow 1
    EXPECT_THAT(text, HasSubstr("x:float"));
    Result<Rules> again = read_rules(text, "test");
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(to_string(again->front()), text);
    EXPECT_EQ(again->front().evidence, Evidence::Proved);
}

// An op asks some sizes only of a run, and of several sizes only what they are together: here that x and y have as many
// rows each as z and u, or in all.
TEST(Claim, WhatTheOpsDemandIsSaidToo) {
    Rule rule =
        to_rule(claim_of("exchange [reassociates]: concat(concat(x, y, axis=1), concat(z, u, axis=1), axis=0) => "
                         "concat(concat(x, z, axis=0), "
                         "concat(y, u, axis=0), axis=1) where x: [M,K], y: [M,N], z: [P,K], u: [P,N]"));
    EXPECT_THAT(to_string(rule), HasSubstr("dim(z, 1) == dim(x, 1)")) << to_string(rule);
    Result<Verdict> verdict = refute(rule);
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->kind, Verdict::Kind::Holds) << verdict->to_string();
}

TEST(Claim, MultiplesAreDivided) {
    std::string text = to_string(to_rule(claim_of(
        "halves: concat(split.0(x, num_outputs=2), split.1(x, num_outputs=2), axis=0) => x where x: [2*N,M]")));
    EXPECT_THAT(text, HasSubstr("(dim(x, 0) % 2) == 0")) << text;
}

}  // namespace
}  // namespace tessera::claim_test
