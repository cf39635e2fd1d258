// The acceptance of what is believed: hand-written and found rules, corrupted at random, and certificates that were
// tampered with. Whatever is accepted is put before a judge that draws other graphs than the refuter did, and more of
// them: ranks 0 to 4, sizes from 0, NaN, infinities, zeros of both signs, the extremes of integers, every element type.
// TESSERA_CAMPAIGN says how many corruptions, TESSERA_CAMPAIGN_SEED which.
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "discover/believe.h"
#include "discover/check/verify_rule.h"
#include "discover/corrupt.h"
#include "discover/prove/prove_rule.h"
#include "discover/shipped.h"
#include "rewrite/mutate_rules.h"

namespace tessera::belief_campaign_test {
namespace {

struct Draws {
    RandomStream random;
    uint64_t drawn = 0;
    uint64_t below(uint64_t n) { return random.bits(drawn++) % n; }
};

// A slip of a person, a token of the text, or a class that promises more than the rule had.
std::optional<Rule> corrupted_rule(const Rule& rule, Draws& draws) {
    const uint64_t kind = draws.below(20);
    std::optional<Rule> changed;
    if (kind < 10) {
        std::vector<Mutant> mutants = mutants_of(rule);
        if (mutants.empty()) return std::nullopt;
        changed = std::move(mutants[draws.below(mutants.size())].rule);
        // Rules are read from text, which must have the operands that each op needs.
        if (!read_rules(to_string(*changed), "mutant").ok()) return std::nullopt;
    } else if (kind < 19 || rule.exactness == Exactness::Exact) {
        const std::string text = to_string(rule);
        const size_t colon = text.find(": ") + 2;
        std::string body = text.substr(colon);
        for (uint64_t n = 1 + draws.below(2); n-- > 0;) body = corrupted(body, draws.random, draws.drawn);
        Result<Rules> read = read_rules(text.substr(0, colon) + body, "corrupted");
        if (!read.ok() || read->size() != 1) return std::nullopt;
        changed = std::move((*read)[0]);
    } else {
        changed = rule;
        changed->exactness = rule.exactness == Exactness::Approximates ? Exactness::Reassociates : Exactness::Exact;
    }
    changed->name = rule.name;
    if (to_string(*changed) == to_string(rule) && changed->exactness == rule.exactness) return std::nullopt;
    return changed;
}

Shipped all_rules() {
    Shipped all = hand_written_rules(), found = shipped_rules();
    all.rules.insert(all.rules.end(), found.rules.begin(), found.rules.end());
    for (auto& [name, entry] : found.certificates) all.certificates.emplace(name, std::move(entry));
    return all;
}

// A counterexample, by another seed and with more effort than anyone who believes it spends.
std::optional<Verdict> told_apart(const Rule& rule) {
    RefuteOptions options;
    options.seed = campaign_seed() + 1000003;
    options.instances = 400;
    options.draws = 12000;
    options.seconds = 20;
    Result<Verdict> v = refute(rule, options);
    return v.ok() && v->kind == Verdict::Kind::Refuted ? std::optional(std::move(*v)) : std::nullopt;
}

struct Case {
    Rule rule;
    Certificates certificates = {};  // tampered with; none: those that a prover finds
    bool proved = false, believed = false;
    std::optional<Verdict> counterexample = {};
};

void judge(Case& c) {
    if (c.certificates.empty()) {
        const RuleProof proof = prove_for_any_rank(c.rule);
        if (proof.entry.empty()) return;
        Result<Certificates> read = read_certificates(proof.entry, "proof");
        if (!read.ok()) return;
        c.certificates = std::move(*read);
    }
    c.proved = verify_rule(c.rule, c.certificates).ok();
    if (!c.proved) return;
    c.believed = believe(c.rule, c.certificates, refuter_effort()).ok();
    c.counterexample = told_apart(c.rule);
}

void judge_all(std::vector<Case>& cases, const char* what) {
    Team team(2);
    team.each(static_cast<int64_t>(cases.size()), [&](int64_t i, int) { judge(cases[i]); });
    int proved = 0, believed = 0, proved_apart = 0, believed_apart = 0;
    for (const Case& c : cases) {
        proved += c.proved;
        believed += c.believed;
        if (!c.counterexample) continue;
        ++proved_apart;
        believed_apart += c.believed;
        ADD_FAILURE() << (c.believed ? "believed" : "proved, and refuted") << ": " << to_string(c.rule) << "\n"
                      << c.counterexample->to_string();
    }
    printf("%zu %s: %d are proved, %d of them told apart; %d are believed, %d of them told apart (seed %llu)\n",
           cases.size(), what, proved, proved_apart, believed, believed_apart,
           static_cast<unsigned long long>(campaign_seed()));
}

TEST(BeliefCampaign, CorruptedRules) {
    const Shipped all = all_rules();
    Draws draws{RandomStream(campaign_seed(), "corrupted rules")};
    std::vector<Case> cases;
    while (int(cases.size()) < campaign())
        if (auto rule = corrupted_rule(all.rules[draws.below(all.rules.size())], draws))
            cases.push_back({std::move(*rule)});
    judge_all(cases, "corrupted rules");
}

TEST(BeliefCampaign, TamperedCertificates) {
    const Shipped all = all_rules();
    Draws draws{RandomStream(campaign_seed(), "tampered certificates")};
    std::vector<Case> cases;
    const int wanted = std::max(campaign() / 10, 100);
    while (int(cases.size()) < wanted) {
        const Rule& rule = all.rules[draws.below(all.rules.size())];
        auto entry = all.certificates.find(rule.name);
        if (entry == all.certificates.end() || !entry->second.listed.empty()) continue;
        Case c{rule};
        CertificateEntry tampered = entry->second;
        // Of another rule, or with a slip in its steps; for the rule, or for one that it does not prove.
        if (draws.below(3) == 0)
            tampered = all.certificates.at(all.rules[draws.below(all.rules.size())].name);
        else
            for (uint64_t n = 1 + draws.below(3); n-- > 0;)
                tampered.certificate.text = corrupted(tampered.certificate.text, draws.random, draws.drawn);
        if (draws.below(4) != 0) {
            auto changed = corrupted_rule(rule, draws);
            if (!changed) continue;
            c.rule = std::move(*changed);
        }
        c.certificates.emplace(rule.name, std::move(tampered));
        cases.push_back(std::move(c));
    }
    judge_all(cases, "tampered certificates");
}

}  // namespace
}  // namespace tessera::belief_campaign_test
