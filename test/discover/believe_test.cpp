#include "discover/believe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "discover/prove/prove_rule.h"

namespace tessera::believe_test {
namespace {

using testing::HasSubstr;

Rule rule_of(const std::string& text) {
    Result<Rules> rules = read_rules(text, "test.rules");
    EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error().to_string());
    return (*rules)[0];
}

Certificates proof_of(const Rule& rule) {
    const RuleProof proof = prove_for_any_rank(rule);
    EXPECT_TRUE(proof.proved) << proof.reason;
    Result<Certificates> read = read_certificates(proof.entry, "proof");
    EXPECT_TRUE(read.ok());
    return *read;
}

TEST(Believe, WhatBothLinesHold) {
    const Rule rule = rule_of("a: relu(relu(x)) => relu(x)");
    Result<Belief> belief = believe(rule, proof_of(rule), refuter_effort(1));
    ASSERT_TRUE(belief.ok()) << belief.error().to_string();
    EXPECT_TRUE(belief->proved);
    EXPECT_EQ(belief->verdict.instances, refuter_effort(1).instances);
}

TEST(Believe, NothingWithoutTheRefuter) {
    Result<Belief> belief = believe(rule_of("a: relu(neg(x)) => neg(relu(x))"), {}, refuter_effort(1));
    ASSERT_FALSE(belief.ok());
    EXPECT_EQ(belief.error().code(), Code::E0305);
    belief = believe(rule_of("a: relu(relu(x)) => relu(x)"), {}, refuter_effort(1));
    ASSERT_TRUE(belief.ok());
    EXPECT_FALSE(belief->proved);
}

TEST(Believe, NothingWithoutTheCertificateThatItClaims) {
    const Rule rule = rule_of("a: relu(relu(x)) => relu(x)");
    Certificates others = proof_of(rule);
    Result<Belief> belief = believe(rule_of("a: relu(relu(x)) => x"), others, refuter_effort(1));
    ASSERT_FALSE(belief.ok());
    EXPECT_EQ(belief.error().code(), Code::E0305);
}

// A proof of what is refuted is a fault of ours, and says so with both.
TEST(Believe, ADisagreementIsAnInternalErrorThatNamesBoth) {
    const Rule rule = rule_of("wrong: relu(neg(x)) => neg(relu(x))");
    Result<Verdict> verdict = confirm(rule, "step 1 of the proof", refuter_effort(1));
    ASSERT_FALSE(verdict.ok());
    EXPECT_EQ(verdict.error().code(), Code::E0802);
    EXPECT_EQ(verdict.error().where(), "test.rules:1:1");
    const std::string text = verdict.error().to_string();
    EXPECT_THAT(text, HasSubstr("wrong"));
    EXPECT_THAT(text, HasSubstr("step 1 of the proof"));
    EXPECT_THAT(text, HasSubstr("graph right"));
    EXPECT_THAT(text, HasSubstr("on the left"));
}

TEST(Believe, LargeFilesGetABoundedEffort) {
    EXPECT_EQ(refuter_effort(1).instances, refuter_effort(100).instances);
    EXPECT_LT(refuter_effort(1000).instances, refuter_effort(100).instances);
    EXPECT_EQ(refuter_effort(100'000).instances, refuter_effort(10'000).instances);
    EXPECT_GT(refuter_effort(100'000).instances, 0);
}

}  // namespace
}  // namespace tessera::believe_test
