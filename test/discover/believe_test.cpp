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
    Result<Belief> belief = believe(rule, proof_of(rule), refuter_effort());
    ASSERT_TRUE(belief.ok()) << belief.error().to_string();
    EXPECT_TRUE(belief->proved);
    EXPECT_EQ(belief->verdict.instances, refuter_effort().instances);
}

TEST(Believe, NothingWithoutTheRefuter) {
    Result<Belief> belief = believe(rule_of("a: relu(neg(x)) => neg(relu(x))"), {}, refuter_effort());
    ASSERT_FALSE(belief.ok());
    EXPECT_EQ(belief.error().code(), Code::E0305);
    belief = believe(rule_of("a: relu(relu(x)) => relu(x)"), {}, refuter_effort());
    ASSERT_TRUE(belief.ok());
    EXPECT_FALSE(belief->proved);
}

TEST(Believe, NothingWithoutTheCertificateThatItClaims) {
    const Rule rule = rule_of("a: relu(relu(x)) => relu(x)");
    Certificates others = proof_of(rule);
    Result<Belief> belief = believe(rule_of("a: relu(relu(x)) => x"), others, refuter_effort());
    ASSERT_FALSE(belief.ok());
    EXPECT_EQ(belief.error().code(), Code::E0305);
}

// Nor is a rule believed that says it is proved, where nothing proves it: true or not.
TEST(Believe, ProvedIsWhatHasACertificate) {
    const Rule rule = rule_of("a [proved]: relu(relu(x)) => relu(x)");
    EXPECT_TRUE(believe(rule, proof_of(rule), refuter_effort()).ok());
    for (const Certificates& none : {Certificates{}, Certificates{{"a", {.listed = "it is well known"}}}}) {
        Result<Belief> belief = believe(rule, none, refuter_effort());
        ASSERT_FALSE(belief.ok());
        EXPECT_EQ(belief.error().code(), Code::E0305);
        EXPECT_THAT(belief.error().to_string(), HasSubstr("no certificate"));
        EXPECT_TRUE(believe(rule_of("a: relu(relu(x)) => relu(x)"), none, refuter_effort()).ok());
    }
}

// A proof of what is refuted is a fault of ours, and says so with both.
TEST(Believe, ADisagreementIsAnInternalErrorThatNamesBoth) {
    const Rule rule = rule_of("wrong: relu(neg(x)) => neg(relu(x))");
    Result<Verdict> verdict = confirm(rule, "step 1 of the proof", refuter_effort());
    ASSERT_FALSE(verdict.ok());
    EXPECT_EQ(verdict.error().code(), Code::E0802);
    EXPECT_EQ(verdict.error().where(), "test.rules:1:1");
    const std::string text = verdict.error().to_string();
    EXPECT_THAT(text, HasSubstr("wrong"));
    EXPECT_THAT(text, HasSubstr("step 1 of the proof"));
    EXPECT_THAT(text, HasSubstr("graph right"));
    EXPECT_THAT(text, HasSubstr("on the left"));
}

// A false rule that few graphs refute is refuted in a crowd of true ones too, by the same graph.
TEST(Believe, EffortPerRuleIsFixed) {
    std::string text =
        "rare [reassociates]: neg(neg(reduce_sum(add(x:float, c), a, keepdims=0))) => reduce_sum(add(x, c), [1], "
        "keepdims=0) if count(c) == 1 and axes_in(ints(a), rank(x)) == [axis_in(1, rank(x))]\n";
    Result<Belief> alone = believe(rule_of(text), {}, refuter_effort());
    ASSERT_FALSE(alone.ok());
    for (int i = 0; i < 130; ++i) text += fmt::format("ok-{}: identity(identity(x)) => x\n", i);
    Result<Rules> rules = read_rules(text, "test.rules");
    ASSERT_TRUE(rules.ok());
    Status all = believe_all(*rules, {}, nullptr);
    ASSERT_FALSE(all.ok());
    EXPECT_EQ(all.error().to_string(), alone.error().to_string());
}

// A certificate alone is one line of two.
TEST(Believe, NothingThatCouldNotBeTested) {
    const Rule rule = rule_of("never: relu(relu(x)) => relu(x) if rank(x) == 1 and dim(x, 0) == 471100");
    Result<Belief> belief = believe(rule, proof_of(rule), refuter_effort());
    ASSERT_FALSE(belief.ok());
    EXPECT_EQ(belief.error().code(), Code::E0305);
    EXPECT_THAT(belief.error().message(), HasSubstr("no graph was found"));
}

}  // namespace
}  // namespace tessera::believe_test
