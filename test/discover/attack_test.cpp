// Claims of every kind that somebody who wants a false rule believed would try, and their true neighbours
// (attack.txt). What is false must not be proved, nor called exact; what is true and proved must stay so.
#include <gtest/gtest.h>

#include <fstream>

#include "discover/check/check_certificate.h"
#include "discover/check/check_exactness.h"
#include "discover/prove/prove.h"
#include "discover/prove/prove_rule.h"
#include "discover/truth.h"
#include "rewrite/refute/refute.h"
#include "source_dir.h"

namespace tessera::attack_test {
namespace {

std::map<std::string, std::vector<Claim>> sections() {
    std::map<std::string, std::vector<Claim>> all;
    std::ifstream file(source_dir() + "/test/discover/attack.txt");
    EXPECT_TRUE(file.good());
    std::string section;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line.starts_with("#")) continue;
        if (line.starts_with("== ")) {
            section = line.substr(3);
            continue;
        }
        Result<Claim> claim = read_claim("attack: " + line);
        EXPECT_TRUE(claim.ok()) << line << "\n" << (claim.ok() ? "" : claim.error().to_string());
        if (claim.ok()) all[section].push_back(std::move(*claim));
    }
    return all;
}

bool is_proved(const Claim& claim) {
    Result<Proof> proof = prove(claim);
    if (!proof.ok() || !proof->proved()) return false;
    Status checked = check_certificate(claim, proof->certificate);
    EXPECT_TRUE(checked.ok()) << to_string(claim) << "\n" << (checked.ok() ? "" : checked.error().to_string());
    return true;
}

TEST(Attack, FalseClaimsAreNotProved) {
    const auto all = sections();
    for (const Claim& claim : all.at("false")) {
        EXPECT_FALSE(is_proved(claim)) << to_string(claim);
        EXPECT_EQ(evaluated(claim, 5, 60), Truth::Differs) << to_string(claim);
    }
    // At sizes beyond those that are evaluated, or of what the evaluator is not asked.
    for (const Claim& claim : all.at("false, and the evaluator cannot tell"))
        EXPECT_FALSE(is_proved(claim)) << to_string(claim);
    EXPECT_GE(all.at("false").size(), 200u);
}

TEST(Attack, FalseRulesAreRefuted) {
    Result<Rules> rules = load_rules(source_dir() + "/test/discover/attack.rules");
    ASSERT_TRUE(rules.ok()) << rules.error().to_string();
    for (const Rule& rule : *rules) {
        const RuleProof proof = prove_rule(rule);
        EXPECT_FALSE(proof.proved || proof.by_cases) << to_string(rule);
        Result<Verdict> verdict = refute(rule, {.minimise = false});
        ASSERT_TRUE(verdict.ok());
        EXPECT_EQ(verdict->kind, Verdict::Kind::Refuted) << to_string(rule);
    }
    EXPECT_GE(rules->size(), 80u);
}

TEST(Attack, WhatRoundsOtherwiseIsNotExact) {
    const auto all = sections();
    for (const Claim& claim : all.at("not exact"))
        EXPECT_EQ(exactness_of(claim), Exactness::Reassociates) << to_string(claim);
}

TEST(Attack, TrueClaimsAreProved) {
    const auto all = sections();
    for (const Claim& claim : all.at("true")) {
        EXPECT_TRUE(is_proved(claim)) << to_string(claim);
        EXPECT_NE(evaluated(claim, 5), Truth::Differs) << to_string(claim);
    }
    EXPECT_GE(all.at("true").size(), 150u);
    int more = 0;
    for (const Claim& claim : all.at("true, and not proved")) {
        EXPECT_NE(evaluated(claim, 5), Truth::Differs) << to_string(claim);
        more += is_proved(claim);
    }
    printf("%zu true claims are proved, %zu are not; %d of those are now\n", all.at("true").size(),
           all.at("true, and not proved").size(), more);
}

}  // namespace
}  // namespace tessera::attack_test
