// The prover's own test: claims that hold are corrupted in thousands of ways, and not one that changes what a rule
// means may be proved. Whether it does is decided by the reference evaluator, on random sizes and values.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "graph/evaluate.h"
#include "rewrite/mutate_rules.h"
#include "search/check_certificate.h"
#include "search/claims.h"
#include "search/comprehension.h"
#include "search/prove.h"
#include "search/prove_rule.h"

namespace tessera {
namespace {

enum class Truth { Differs, Agrees, Senseless };

// Both sides on random values at one choice of sizes.
Truth compare_at(const Claim& claim, const Bindings& sizes, const RandomStream& random, uint64_t& drawn) {
    Result<Sides> sides = build_sides(claim, sizes);
    if (!sides.ok()) return Truth::Senseless;
    Graph& graph = *sides->graph;
    for (Value* v : sides->left) graph.add_output(v);
    for (Value* v : sides->right) graph.add_output(v);
    Inputs inputs;
    for (const auto& input : graph.inputs()) {
        auto shape = input->type().tensor().shape.sizes();
        if (!shape) return Truth::Senseless;
        Result<Tensor> t = Tensor::zeros(input->type().tensor().dtype, *shape);
        if (!t.ok() || t->elements() > 200000) return Truth::Senseless;
        for (int64_t i = 0; i < t->elements(); ++i) t->set_real(i, 4 * random.uniform(drawn++) - 2);
        inputs.emplace(input->name(), std::move(*t));
    }
    Result<std::vector<Datum>> results = evaluate(graph, inputs);
    if (!results.ok()) return Truth::Senseless;
    size_t n = sides->left.size();
    for (size_t k = 0; k < n; ++k) {
        const Tensor &l = (*results)[k].tensor(), &r = (*results)[n + k].tensor();
        double largest = 1;
        for (int64_t i = 0; i < l.elements(); ++i)
            if (std::isfinite(l.real_at(i))) largest = std::max(largest, std::fabs(l.real_at(i)));
        for (int64_t i = 0; i < l.elements(); ++i) {
            double a = l.real_at(i), b = r.real_at(i);
            if (std::isnan(a) || (std::isinf(a) && a == b)) continue;
            if (!(std::fabs(a - b) <= 1e-4 * largest)) return Truth::Differs;
        }
    }
    return Truth::Agrees;
}

Truth truth_of(const Claim& claim, uint64_t seed) {
    RandomStream random(seed, "mutants");
    uint64_t drawn = 0;
    Truth truth = Truth::Senseless;
    for (int round = 0; round < 12; ++round) {
        Bindings sizes;
        for (const std::string& s : size_symbols(claim))
            sizes.emplace(s, static_cast<int64_t>(1 + random.bits(drawn++) % (round < 8 ? 6 : 12)));
        Truth here = compare_at(claim, sizes, random, drawn);
        if (here == Truth::Differs) return here;
        if (here == Truth::Agrees) truth = here;
    }
    return truth;
}

struct Tally {
    int corrupted = 0, proved = 0, equivalent = 0, not_proved = 0, senseless = 0;
};

void try_mutant(const Claim& claim, const std::string& change, Tally& tally) {
    Truth truth = truth_of(claim, static_cast<uint64_t>(tally.corrupted));
    ProveOptions options;
    options.certificate = false;
    Result<Proof> proof = prove(claim, options);
    bool proved = proof.ok() && proof->proved();
    if (truth == Truth::Differs) {
        ++tally.corrupted;
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
        EXPECT_NE(truth_of(claim, 1), Truth::Differs) << to_string(claim);
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
    printf("%d corrupted, %d proved; of the others %d hold and are proved, %d hold and are not, %d make no sense\n",
           tally.corrupted, tally.proved, tally.equivalent, tally.not_proved, tally.senseless);
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
    printf("%d corrupted, %d proved; of the others %d hold and are proved, %d hold and are not, %d make no sense\n",
           tally.corrupted, tally.proved, tally.equivalent, tally.not_proved, tally.senseless);
}

}  // namespace
}  // namespace tessera
