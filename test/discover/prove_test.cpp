#include "discover/prove/prove.h"

#include <gtest/gtest.h>

#include "discover/check/check_certificate.h"
#include "discover/claims.h"
#include "discover/discover_bound.h"
#include "rewrite/refute/refute.h"

namespace tessera::prove_test {
namespace {

TEST(Prove, WhatHoldsForAllSizes) {
    for (const Claim& claim : listed_claims().hold) {
        Result<Proof> proof = prove(claim);
        ASSERT_TRUE(proof.ok()) << to_string(claim) << "\n" << proof.error().to_string();
        EXPECT_TRUE(proof->proved()) << to_string(claim) << "\n" << proof->reason;
        if (!proof->proved()) continue;
        Status checked = check_certificate(claim, proof->certificate);
        EXPECT_TRUE(checked.ok()) << checked.error().to_string() << "\n" << proof->certificate.text;
    }
}

TEST(Prove, NothingThatDoesNotHold) {
    for (const Claim& claim : listed_claims().do_not) {
        Result<Proof> proof = prove(claim);
        EXPECT_FALSE(proof.ok() && proof->proved()) << to_string(claim) << "\n" << proof->certificate.text;
    }
}

TEST(Prove, TheAxiomsOfTaso) {
    std::set<int> numbers;
    for (const Claim& claim : axioms().hold) {
        numbers.insert(std::stoi(claim.rule.name.substr(claim.rule.name.find('-') + 1)));
        Result<Proof> proof = prove(claim);
        ASSERT_TRUE(proof.ok()) << to_string(claim) << "\n" << proof.error().to_string();
        EXPECT_TRUE(proof->proved()) << to_string(claim) << "\n" << proof->reason;
        Status checked = check_certificate(claim, proof->certificate);
        EXPECT_TRUE(checked.ok()) << to_string(claim) << "\n" << (checked.ok() ? "" : checked.error().to_string());
    }
    for (int i = 1; i <= 43; ++i) EXPECT_TRUE(numbers.contains(i)) << i;
}

TEST(Prove, NotTheUnsoundFormsOfAxioms) {
    EXPECT_GE(axioms().do_not.size(), 5u);
    for (const Claim& claim : axioms().do_not) {
        for (const Claim& general : generalise(claim)) {
            Result<Proof> proof = prove(general);
            EXPECT_FALSE(proof.ok() && proof->proved()) << to_string(general);
        }
        Result<Verdict> verdict = refute(to_rule(claim), {});
        ASSERT_TRUE(verdict.ok()) << verdict.error().to_string();
        EXPECT_EQ(verdict->kind, Verdict::Kind::Refuted) << to_string(claim);
    }
}

TEST(Prove, GeneralisesOverWindowsAndSizes) {
    for (const Claim& claim : listed_claims().hold) {
        if (claim.rule.name != "conv-concat-out" && claim.rule.name != "group-par") continue;
        std::vector<Claim> general = generalise(claim);
        ASSERT_GT(general.size(), 1u);
        Result<Proof> proof = prove(general[0]);
        ASSERT_TRUE(proof.ok()) << proof.error().to_string();
        EXPECT_TRUE(proof->proved()) << to_string(general[0]) << proof->reason;
        EXPECT_TRUE(check_certificate(general[0], proof->certificate).ok());
        std::string rule = to_string(to_rule(general[0]));
        EXPECT_NE(rule.find("strides=strides, pads=pads, dilations=dilations"), std::string::npos) << rule;
        EXPECT_EQ(to_string(general.back()), to_string(claim));
    }
}

// Discovery gives up forms that a few numbers refute.
TEST(Prove, FewNumbersRefuteOnlyWhatDoesNotHold) {
    for (const Claim& claim : listed_claims().hold) EXPECT_FALSE(floats_soon_differ(claim)) << to_string(claim);
    int refuted = 0;
    for (const Claim& claim : listed_claims().do_not) refuted += floats_soon_differ(claim);
    EXPECT_GT(refuted, 0);
}

TEST(Prove, AsksAtMostOnceWhetherToGiveUp) {
    for (const Claim& claim : listed_claims().hold) {
        size_t asked = 0;
        Result<Proof> proof = prove(claim, {.give_up = [&] { return ++asked, true; }});
        ASSERT_TRUE(proof.ok()) << to_string(claim);
        EXPECT_NE(proof->proved(), asked > 0) << to_string(claim) << "\n" << proof->reason;
        EXPECT_LE(asked, 1u) << to_string(claim);
    }
}

TEST(Prove, SaysWhyNot) {
    Result<Claim> claim = read_claim("bad: relu(add(x, y)) => add(relu(x), relu(y)) where x: [N], y: [N]");
    ASSERT_TRUE(claim.ok());
    Result<Proof> proof = prove(*claim);
    ASSERT_TRUE(proof.ok());
    EXPECT_EQ(proof->verdict, Proof::Verdict::Unknown);
    EXPECT_NE(proof->reason.find("what remains"), std::string::npos);
    claim = read_claim("shapes: matmul(x, y) => matmul(y, x) where x: [M,K], y: [K,N]");
    ASSERT_TRUE(claim.ok());
    EXPECT_FALSE(prove(*claim).ok());
    claim = read_claim("unknown: add(x, y) => add(y, x) where x: [M]");
    ASSERT_TRUE(claim.ok());
    EXPECT_FALSE(prove(*claim).ok());
}

}  // namespace
}  // namespace tessera::prove_test
