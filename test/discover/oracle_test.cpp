// Second opinions on what is believed: the certificates of rules/found, step by step and as a whole, and corrupted
// claims. Z3 or isl finding a counterexample is a failure. TESSERA_CAMPAIGN says how many claims and questions are put
// (all of them from 10000 on).
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/random.h"
#include "discover/check/check_certificate.h"
#include "discover/claims.h"
#include "discover/oracles.h"
#include "discover/prove/prove.h"
#include "discover/shipped.h"
#include "rewrite/mutate_rules.h"

namespace tessera::oracle_test {
namespace {

constexpr const char* kWithoutZ3 = "Z3 is not installed: tools/setup.sh oracles";
constexpr const char* kWithoutIsl = "isl is not installed: tools/setup.sh oracles";

struct Tally {
    int asked = 0, agreed = 0, symbolic = 0, disagreed = 0;
    std::map<std::string, int> reasons = {};

    void note(const SecondOpinion& said, const std::string& about) {
        ++asked;
        agreed += said.opinion == Opinion::Agrees;
        symbolic += said.opinion == Opinion::Agrees && said.symbolic;
        if (said.opinion == Opinion::None) ++reasons[said.why.substr(0, 50)];
        if (said.opinion != Opinion::Disagrees) return;
        ++disagreed;
        ADD_FAILURE() << about << "\n" << said.why;
    }
    void print(const char* who) const {
        printf("%s was asked %d times: %d agreed (%d with all sizes open), %d disagreed\n", who, asked, agreed,
               symbolic, disagreed);
        for (const auto& [why, count] : reasons) printf("  %5d no opinion: %s\n", count, why.c_str());
    }
};

// Every n-th, so that about `wanted` are left.
size_t every(size_t all, size_t wanted) { return std::max<size_t>(1, all / std::max<size_t>(1, wanted)); }

TEST(Oracles, TheCheckersArithmeticIsThatOfIntegers) {
    if (!has_z3()) GTEST_SKIP() << kWithoutZ3;
    const Shipped all = shipped_rules();
    std::set<size_t> seen;
    Tally tally;
    checker::Names::observer = [&](const checker::Names& names, const checker::Conjunction& facts) {
        // The same question, whatever numbers its atoms have.
        std::string text;
        for (const checker::Whole& f : facts) {
            for (const auto& [product, c] : f) {
                text += std::to_string(c);
                for (int a : product) text += "*" + std::to_string(a) + names.at(a).name;
            }
            text += ";";
        }
        if (!seen.insert(std::hash<std::string>{}(text)).second) return;
        if (campaign() < 10000 && seen.size() % 3 != 0) return;
        tally.note(ask_z3(names, facts), text);
    };
    for (size_t i = 0; i < all.rules.size(); ++i) {
        const Rule& rule = all.rules[i];
        Status held = check_certificate(all.claim(rule), all.certificates.at(rule.name).certificate);
        EXPECT_TRUE(held.ok()) << rule.name;
    }
    checker::Names::observer = nullptr;
    tally.print("Z3");
    EXPECT_GE(tally.agreed, 400);
}

TEST(Oracles, ClaimsThatAreProvedHold) {
    if (!has_z3() && !has_isl()) GTEST_SKIP() << kWithoutZ3 << "; " << kWithoutIsl;
    std::vector<Claim> claims = listed_claims().hold;
    const Shipped all = shipped_rules();
    const size_t step = every(all.rules.size(), static_cast<size_t>(campaign()) / 3);
    for (size_t i = 0; i < all.rules.size(); i += step) claims.push_back(all.claim(all.rules[i]));
    Tally z3, isl;
    for (size_t i = 0; i < claims.size(); ++i) {
        if (has_z3() && (campaign() >= 10000 || i % 3 == 0)) z3.note(ask_z3(claims[i], i), to_string(claims[i]));
        if (has_isl()) isl.note(ask_isl(claims[i], i), to_string(claims[i]));
    }
    z3.print("Z3");
    isl.print("isl");
    if (has_z3()) {
        EXPECT_GE(z3.agreed, z3.asked / 4);
    }
    if (has_isl()) {
        EXPECT_GE(isl.agreed, isl.asked / 4);
    }
}

TEST(Oracles, TellWhatDoesNotHold) {
    if (!has_z3() && !has_isl()) GTEST_SKIP() << kWithoutZ3 << "; " << kWithoutIsl;
    int z3 = 0, isl = 0;
    for (const Claim& claim : listed_claims().do_not) {
        bool told = false;
        for (uint64_t seed = 0; seed < 3 && !told; ++seed) told = ask_z3(claim, seed).opinion == Opinion::Disagrees;
        z3 += told;
        isl += ask_isl(claim, 1).opinion == Opinion::Disagrees;
    }
    printf("of %zu claims that do not hold Z3 tells %d, isl %d\n", listed_claims().do_not.size(), z3, isl);
    if (has_z3()) {
        EXPECT_GE(z3, 8);
    }
    if (has_isl()) {
        EXPECT_GE(isl, 4);
    }
}

// Rules corrupted at random: those that are proved must hold, and the oracles must tell some of the others.
TEST(Oracles, CorruptedClaimsThatAreProvedHold) {
    if (!has_z3() && !has_isl()) GTEST_SKIP() << kWithoutZ3 << "; " << kWithoutIsl;
    const Shipped all = shipped_rules();
    RandomStream random(19, "oracles");
    uint64_t drawn = 0;
    Tally z3, isl;
    int tried = 0, proved = 0, told = 0;
    for (; tried < campaign(); ++tried) {
        const Rule& rule = all.rules[random.bits(drawn++) % all.rules.size()];
        std::vector<Mutant> mutants = mutants_of(rule);
        if (mutants.empty()) continue;
        Claim claim = all.claim(rule);
        claim.rule = mutants[random.bits(drawn++) % mutants.size()].rule;
        claim.rule.conditions.clear();
        Result<Proof> proof = prove(claim);
        if (!proof.ok()) continue;
        const SecondOpinion by_isl = ask_isl(claim, drawn);
        const SecondOpinion by_z3 = proof->proved() || tried % 4 == 0 ? ask_z3(claim, drawn) : SecondOpinion{};
        if (!proof->proved()) {
            told += by_isl.opinion == Opinion::Disagrees || by_z3.opinion == Opinion::Disagrees;
            continue;
        }
        ++proved;
        if (has_z3()) z3.note(by_z3, to_string(claim));
        if (has_isl()) isl.note(by_isl, to_string(claim));
    }
    printf("%d corrupted claims, %d proved; of the others %d are told to differ (seed 19)\n", tried, proved, told);
    z3.print("Z3");
    isl.print("isl");
    EXPECT_GE(told, tried / 20);
}

}  // namespace
}  // namespace tessera::oracle_test
