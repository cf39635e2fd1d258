// The prover's own test: claims that hold are corrupted in thousands of ways, and not one that changes what a rule
// means may be proved. Whether it does is decided by the reference evaluator, on random sizes and values.
#include <gtest/gtest.h>

#include "discover/check/check_certificate.h"
#include "discover/claims.h"
#include "discover/prove/prove.h"
#include "discover/prove/prove_rule.h"
#include "discover/truth.h"
#include "rewrite/mutate_rules.h"

namespace tessera::mutation_test {
namespace {

struct Tally {
    int corrupted = 0, proved = 0, equivalent = 0, not_proved = 0, senseless = 0;
    std::map<std::string, int> classes = {};  // of the corrupted

    void print() const {
        printf("%d corrupted, %d proved; of the others %d hold and are proved, %d hold and are not, %d make no sense\n",
               corrupted, proved, equivalent, not_proved, senseless);
        for (const auto& [name, count] : classes) printf("  %5d %s\n", count, name.c_str());
    }
};

std::string class_of(const std::string& change) {
    const size_t bar = change.find(" | ");
    const std::string what = bar == change.npos ? change : change.substr(bar + 3);
    if (what.find(" with the right of ") != what.npos) return "the right side of another";
    if (what.starts_with("swap")) return "operands or results swapped";
    if (what.starts_with("take the first input")) return "an op left out";
    if (what.starts_with("drop condition")) return "a condition dropped";
    if (what.starts_with("drop")) return "an attribute or an input dropped";
    if (what.starts_with("match any")) return "any value of an attribute matched";
    if (what.ends_with("one larger") || what.find(" for another than ") != what.npos || what.starts_with("take pads"))
        return "a number, axis or attribute changed";
    if (what.starts_with("take")) return "an op taken for another";
    return what;
}

void try_mutant(const Claim& claim, const std::string& change, Tally& tally) {
    Truth truth = evaluated(claim, static_cast<uint64_t>(tally.corrupted));
    ProveOptions options;
    options.certificate = false;
    Result<Proof> proof = prove(claim, options);
    bool proved = proof.ok() && proof->proved();
    if (truth == Truth::Differs) {
        ++tally.corrupted;
        ++tally.classes[class_of(change)];
        tally.proved += proved;
        EXPECT_FALSE(proved) << change << "\n" << to_string(claim);
    } else if (truth == Truth::Senseless) {
        ++tally.senseless;
        EXPECT_FALSE(proved) << change << "\n" << to_string(claim);
    } else {
        ++(proved ? tally.equivalent : tally.not_proved);
    }
}

TEST(ProverMutants, OfClaimsAreNotProved) {
    Tally tally;
    for (const Claim& claim : listed_claims().hold) {
        EXPECT_NE(evaluated(claim, 1), Truth::Differs) << to_string(claim);
        Result<Proof> proof = prove(claim);
        ASSERT_TRUE(proof.ok() && proof->proved()) << to_string(claim);
        for (const Mutant& m : mutants_of(claim.rule)) {
            Claim mutant{m.rule, claim.shapes, claim.values};
            int before = tally.corrupted;
            try_mutant(mutant, claim.rule.name + " | " + m.change, tally);
            // The proof of what it was is no proof of what it became.
            if (tally.corrupted > before) {
                EXPECT_FALSE(check_certificate(mutant, proof->certificate).ok()) << to_string(mutant);
            }
        }
    }
    // The left side of one, the right side of another.
    const std::vector<Claim>& hold = listed_claims().hold;
    for (size_t i = 0; i < hold.size(); ++i)
        for (size_t j = 0; j < hold.size(); ++j) {
            std::string left = to_string(hold[i].rule), right = to_string(hold[j].rule);
            size_t l = left.find(" => "), r = right.find(" => ");
            if (i == j || hold[i].rule.pattern.size() != hold[j].rule.pattern.size()) continue;
            Result<Rules> rules = read_rules(left.substr(0, l) + right.substr(r), "mutant");
            if (!rules.ok()) continue;
            try_mutant({rules->front(), hold[i].shapes}, hold[i].rule.name + " with the right of " + hold[j].rule.name,
                       tally);
        }
    EXPECT_GE(tally.corrupted, 500);
    EXPECT_EQ(tally.proved, 0);
    tally.print();
}

TEST(ProverMutants, OfBuiltInRulesAreNotProved) {
    Tally tally;
    std::set<std::string> sources;
    for (const RuleFile& file : built_in_rule_files())
        for (const Rule& rule : built_in_rules(file.name)) {
            if (!sources.insert(rule.source).second) continue;  // one of those that a line stands for
            std::vector<Claim> claims = draw_claims(rule, 3);
            if (claims.empty()) continue;
            std::vector<Mutant> mutants = mutants_of(claims[0].rule);
            for (size_t i = 0; i < mutants.size(); ++i) {
                const Claim& claim = claims[i % claims.size()];
                Claim mutant{mutants[i].rule, claim.shapes, claim.values};
                mutant.rule.conditions.clear();
                try_mutant(mutant, rule.name + " | " + mutants[i].change, tally);
            }
        }
    EXPECT_GE(tally.corrupted, 500);
    EXPECT_EQ(tally.proved, 0);
    tally.print();
}

// What is known to have been accepted elsewhere, with many kernels, pads, strides and groups.
TEST(ProverMutants, OfKnownBadClassesAreNotProved) {
    Tally tally;
    auto refuse = [&](const std::string& name, const std::string& text) {
        Result<Claim> claim = read_claim("bad: " + text);
        ASSERT_TRUE(claim.ok()) << text << claim.error().to_string();
        EXPECT_EQ(evaluated(*claim, 7), Truth::Differs) << text;
        for (const Claim& general : generalise(*claim)) {
            Result<Proof> proof = prove(general);
            EXPECT_FALSE(proof.ok() && proof->proved()) << to_string(general);
        }
        try_mutant(*claim, "known | " + name, tally);
    };
    for (int group : {2, 3})
        for (int kernel : {1, 3})
            for (const char* window : {"", ", strides=[2,2]", ", pads=[1,1,1,1]", ", dilations=[2,1]"}) {
                const std::string a = fmt::format("group={}{}", group, window);
                const std::string x = fmt::format("[N,{}*C,H,W]", group), y = fmt::format("[N,{}*D,H,W]", group);
                const std::string w = fmt::format("[{}*O,C,{},{}]", group, kernel, kernel);
                const std::string v = fmt::format("[{}*P,C,{},{}]", group, kernel, kernel);
                const std::string u = fmt::format("[{}*O,D,{},{}]", group, kernel, kernel);
                refuse("grouped convolutions concatenated",
                       fmt::format(
                           "concat(conv(x, w, {0}), conv(x, v, {0}), axis=1) => conv(x, concat(w, v, axis=0), {0}) "
                           "where x: {1}, w: {2}, v: {3}",
                           a, x, w, v));
                refuse("grouped convolutions concatenated",
                       fmt::format("add(conv(x, w, {0}), conv(y, v, {0})) => conv(concat(x, y, axis=1), concat(w, v, "
                                   "axis=1), {0}) where x: {1}, y: {2}, w: {3}, v: {4}",
                                   a, x, y, w, u));
            }
    for (const char* window :
         {"kernel_shape=[3,3], pads=[1,1,1,1]", "kernel_shape=[2,2], pads=[1,0,0,1]",
          "kernel_shape=[3,2], pads=[1,1,1,0], strides=[2,1]", "kernel_shape=[5,5], pads=[2,2,2,2]",
          "kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]"}) {
        const std::string pool = fmt::format("average_pool(x, {})", window);
        const std::string counted = fmt::format("average_pool(x, {}, count_include_pad=1)", window);
        refuse("padding excluded from an average", fmt::format("{} => {} where x: [N,C,H,W]", pool, counted));
        refuse("padding excluded from an average", fmt::format("{} => {} where x: [N,C,H,W]", counted, pool));
    }
    for (const char* window : {"", ", strides=[2,2]"})
        refuse("padding excluded from an average",
               fmt::format("conv(x, div(expand(unsqueeze(eye_like(e), [2,3]), [1,1,3,3]), 9.0), pads=[1,1,1,1]{0}) => "
                           "average_pool(x, kernel_shape=[3,3], pads=[1,1,1,1]{0}) where x: [N,C,H,W], e: [C,C]",
                           window));
    // With SAME_LOWER, strides of 1 and 2 are right.
    for (auto [side, strides] : {std::pair("SAME_UPPER", "[2,2]"),
                                 {"SAME_UPPER", "[2,1]"},
                                 {"SAME_UPPER", "[1,2]"},
                                 {"SAME_UPPER", "[3,2]"},
                                 {"SAME_UPPER", "[4,4]"},
                                 {"SAME_LOWER", "[3,2]"},
                                 {"SAME_LOWER", "[4,4]"}})
        for (const char* wider : {"0,0,1,1,0,0,1,1", "0,0,2,2,0,0,2,2"})
            refuse("SAME at a stride, enlarged",
                   fmt::format("conv(x, w, auto_pad=\"{0}\", strides={1}) => conv(x, pad(w, [{2}]), auto_pad=\"{0}\", "
                               "strides={1}) where x: [N,C,H,W], w: [O,C,1,1]",
                               side, strides, wider));
    for (auto [pads, kernel] :
         {std::pair("pads=[1,1,1,1]", "3,3"), {"pads=[1,0,1,0]", "3,1"}, {"pads=[0,1,0,1]", "1,3"}})
        for (const char* pool : {"average_pool", "max_pool"})
            refuse("equal at some sizes only",
                   fmt::format("conv({0}(x, kernel_shape=[{2}], {1}), w, {1}) => {0}(conv(x, w, {1}), "
                               "kernel_shape=[{2}], {1}) where x: [N,C,H,W], w: [C,C,{2}]",
                               pool, pads, kernel));
    for (const char* text :
         {"transpose(x, perm=[1,0]) => x where x: [N,N]", "matmul(x, y) => matmul(y, x) where x: [N,N], y: [N,N]",
          "matmul(x, x) => mul(x, x) where x: [N,N]",
          "matmul(x, transpose(x, perm=[1,0])) => matmul(x, x) where x: [N,N]",
          "transpose(x, perm=[0,2,1]) => x where x: [B,N,N]",
          "concat(x, y, axis=0) => concat(y, x, axis=0) where x: [N], y: [N]",
          "reduce_sum(x, [0]) => slice(x, [0], [1], [0]) where x: [M,N]",
          "reduce_max(x, [1]) => slice(x, [0], [1], [1]) where x: [M,N]",
          "reduce_mean(x, [1]) => reduce_sum(x, [1]) where x: [M,N]",
          "reduce_max(x, [0]) => reduce_min(x, [0]) where x: [M,N]",
          "split.0(x, axis=0, num_outputs=2) => split.1(x, axis=0, num_outputs=2) where x: [2*N,M]"})
        refuse("equal at some sizes only", text);
    EXPECT_GE(tally.corrupted, 70);
    EXPECT_EQ(tally.proved, 0);
    tally.print();
}

}  // namespace
}  // namespace tessera::mutation_test
