#include "search/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::Not;

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
    EXPECT_THAT(text, HasSubstr("dim(z, 1) == dim(y, 1)"));  // broadcasting would allow 1
    EXPECT_THAT(text, HasSubstr("x:float"));
    Result<Rules> again = read_rules(text, "test");
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(to_string(again->front()), text);
    EXPECT_EQ(again->front().evidence, Evidence::Proved);
}

TEST(Claim, WhatTheOpsDemandIsNotSaid) {
    std::string text = to_string(
        to_rule(claim_of("twice: mul(matmul(x, y), 2.0) => matmul(mul(x, 2.0), y) where x: [M,K], y: [K,N]")));
    EXPECT_THAT(text, Not(HasSubstr("dim(y, 0)"))) << text;
    text = to_string(to_rule(claim_of(
        "conv-add: conv(x, add(w, v)) => add(conv(x, w), conv(x, v)) where x: [N,C,H,W], w: [O,C,3,3], v: [O,C,3,3]")));
    EXPECT_THAT(text, HasSubstr("dim(w, 2) == 3"));
    EXPECT_THAT(text, Not(HasSubstr("dim(x, 1) == "))) << text;
}

TEST(Claim, MultiplesAreDivided) {
    std::string text = to_string(to_rule(claim_of(
        "halves: concat(split.0(x, num_outputs=2), split.1(x, num_outputs=2), axis=0) => x where x: [2*N,M]")));
    EXPECT_THAT(text, HasSubstr("(dim(x, 0) % 2) == 0")) << text;
}

}  // namespace
}  // namespace tessera
