// The laws of attention, padded windows and joined parts: lemmas proved of the ops' bodies, and false rules near them.
#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "discover/check/check_certificate.h"
#include "discover/prove/prove.h"
#include "discover/prove/prove_rule.h"
#include "discover/shipped.h"
#include "rewrite/mutate_rules.h"
#include "rewrite/refute/refute.h"
#include "source_dir.h"

namespace tessera::near_laws_test {
namespace {

bool is_refuted(const Rule& rule) {
    Result<Verdict> verdict = refute(rule, {.instances = 60, .draws = 4000, .minimise = false});
    return verdict.ok() && verdict->kind == Verdict::Kind::Refuted;
}

// What a law says of a given rank, with symbols for sizes and pads.
TEST(NearLaws, LemmasAreProvedOfTheBodies) {
    struct Lemma {
        const char* claim;
        std::map<std::string, std::vector<Expr>> values = {};
    };
    const std::vector<Lemma> lemmas = {
        {"grid: space_to_depth(x:float, blocksize=2) => concat(slice(x, [0, 0], drop(dims(x), 2), [2, 3], [2, 2]), "
         "slice(x, [0, 1], drop(dims(x), 2), [2, 3], [2, 2]), slice(x, [1, 0], drop(dims(x), 2), [2, 3], [2, 2]), "
         "slice(x, [1, 1], drop(dims(x), 2), [2, 3], [2, 2]), axis=1) where x: [B,C,2*H,2*W]"},
        {"turned: rotary_embedding(x:float, c, s) => add(mul(x, unsqueeze(concat(c, c, axis=2), [1])), "
         "mul(concat(neg(slice(x, [dim(c, 2)], [2 * dim(c, 2)], [3], [1])), slice(x, [0], [dim(c, 2)], [3], [1]), "
         "axis=3), unsqueeze(concat(s, s, axis=2), [1]))) where x: [B,N,S,2*D], c: [B,S,D], s: [B,S,D]"},
        {"padded: conv(x:float, w, pads=p) => conv(pad(x, [0, 0, p[0], 0, 0, p[1]]), w) where x: [B,C,N], w: [F,C,K]",
         {{"p", {symbol("P"), symbol("Q")}}}},
        {"padded-plane: conv(x:float, w, pads=p, strides=[2, 3]) => conv(pad(x, [0, 0, p[0], p[1], 0, 0, p[2], p[3]]), "
         "w, strides=[2, 3]) where x: [B,C,N,M], w: [F,C,K,L]",
         {{"p", {symbol("P"), symbol("Q"), symbol("R"), symbol("S")}}}},
        {"padded-mean: average_pool(x:float, pads=p, kernel_shape=[3], count_include_pad=1) => "
         "average_pool(pad(x, [0, 0, p[0], 0, 0, p[1]]), kernel_shape=[3]) where x: [B,C,N]",
         {{"p", {symbol("P"), symbol("Q")}}}},
        {"stacked: transpose(x:float, perm=[0, 1, 3, 2]) => reshape(transpose(reshape(x, [dim(x, 0) * dim(x, 1), "
         "dim(x, 2), dim(x, 3)]), perm=[0, 2, 1]), [dim(x, 0), dim(x, 1), dim(x, 3), dim(x, 2)]) where x: [A,B,C,D]"},
        {"part: slice(add(y:float, concat(b, c, axis=0)), s, e, [1], [1]) => add(slice(y, s, e, [1], [1]), c) "
         "where y: [M,N+K], b: [N], c: [K]",
         {{"s", {symbol("N")}}, {"e", {symbol("N") + symbol("K")}}}},
        {"scores: attention(q:float, k, v, scale=1.0) => matmul(softmax(matmul(q, transpose(k, perm=[0, 1, 3, 2]))), "
         "v) "
         "where q: [B,H,S,D], k: [B,H,T,D], v: [B,H,T,E]"},
    };
    for (const Lemma& lemma : lemmas) {
        Result<Claim> claim = read_claim(lemma.claim);
        ASSERT_TRUE(claim.ok()) << claim.error().to_string();
        for (const auto& [name, list] : lemma.values) claim->values.emplace(name, list);
        Result<Proof> proof = prove(*claim);
        ASSERT_TRUE(proof.ok()) << proof.error().to_string();
        EXPECT_TRUE(proof->proved()) << lemma.claim << "\n" << proof->reason;
        if (!proof->proved()) continue;
        Status held = check_certificate(*claim, proof->certificate);
        EXPECT_TRUE(held.ok()) << (held.ok() ? "" : held.error().to_string());
    }
}

TEST(NearLaws, FalseRulesAreNotBelieved) {
    Result<Rules> rules = load_rules(source_dir() + "/test/discover/near_laws.rules");
    ASSERT_TRUE(rules.ok()) << rules.error().to_string();
    EXPECT_GE(rules->size(), 91u);
    size_t refuted = 0;
    for (const Rule& rule : *rules) {
        EXPECT_FALSE(prove_for_any_rank(rule).proved) << to_string(rule);
        refuted += is_refuted(rule);
    }
    printf("%zu of %zu are refuted\n", refuted, rules->size());
    EXPECT_GE(refuted, 75u);  // the others need sizes that are seldom drawn, or break what exact means
}

// The rules that these laws are for.
Rules ruled() {
    const std::set<std::string> names = {"attention",
                                         "attention-scaled",
                                         "attention-divided",
                                         "attention-masked",
                                         "attention-scaled-masked",
                                         "attention-divided-masked",
                                         "attention-before-23",
                                         "attention-masked-before-23",
                                         "attention-grouped",
                                         "pad-conv",
                                         "pad-max-pool",
                                         "pad-average-pool",
                                         "rotary",
                                         "rotary-before-23",
                                         "phases-to-space-to-depth",
                                         "merge-biases",
                                         "transpose-of-stacked"};
    Rules out;
    for (const RuleFile& file : built_in_rule_files())
        for (const Rule& rule : built_in_rules(file.name))
            if (names.contains(rule.name)) out.push_back(rule);
    EXPECT_EQ(out.size(), names.size());
    return out;
}

// Each condition left out, and each mutant.
TEST(NearLaws, CorruptedRulesAreNotBelieved) {
    size_t tried = 0, accepted = 0;
    for (const Rule& rule : ruled()) {
        Rules changed;
        for (const Mutant& m : mutants_of(rule)) changed.push_back(m.rule);
        for (size_t i = 0; i < rule.conditions.size(); ++i) {
            changed.push_back(rule);
            changed.back().conditions.erase(changed.back().conditions.begin() + static_cast<long>(i));
        }
        for (const Rule& other : changed) {
            ++tried;
            if (!prove_for_any_rank(other).proved) continue;
            ++accepted;
            EXPECT_FALSE(is_refuted(other)) << to_string(other);
        }
    }
    EXPECT_GE(tried, 600u);
    printf("%zu corrupted rules: %zu were accepted\n", tried, accepted);
}

// TESSERA_CAMPAIGN says how many.
TEST(NearLaws, RulesCorruptedTwiceAreNotBelieved) {
    const Rules all = ruled();
    RandomStream random(23, "twice");
    uint64_t drawn = 0;
    int read = 0, accepted = 0;
    for (; read < campaign(); ++read) {
        Rule changed = all[random.bits(drawn++) % all.size()];
        for (int times = 0; times < 2; ++times)
            if (std::vector<Mutant> mutants = mutants_of(changed); !mutants.empty())
                changed = mutants[random.bits(drawn++) % mutants.size()].rule;
        if (!prove_for_any_rank(changed).proved) continue;
        ++accepted;
        EXPECT_FALSE(is_refuted(changed)) << to_string(changed);
    }
    printf("%d rules corrupted twice: %d were accepted\n", read, accepted);
}

}  // namespace
}  // namespace tessera::near_laws_test
