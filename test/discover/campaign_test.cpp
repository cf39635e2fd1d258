// Rules and certificates that come with Tessera, corrupted at random. Whatever is accepted then is tried by the
// evaluator at sizes of 0 to 7, and must hold. TESSERA_CAMPAIGN says how many corruptions of each (10000 take some
// minutes), TESSERA_CAMPAIGN_SEED which.
#include <gtest/gtest.h>

#include "base/random.h"
#include "discover/check/verify_rule.h"
#include "discover/corrupt.h"
#include "discover/prove/prove.h"
#include "discover/shipped.h"
#include "discover/truth.h"
#include "rewrite/mutate_rules.h"

namespace tessera::campaign_test {
namespace {

struct Count {
    int tried = 0, read = 0, accepted = 0, told_apart = 0;
    void print(const char* what) const {
        printf("%d corrupted %s: %d could be read, %d were accepted, %d of these the evaluator tells apart\n", tried,
               what, read, accepted, told_apart);
    }
};

void judge(const Claim& claim, bool accepted, uint64_t seed, Count& count, const std::string& how) {
    if (!accepted) return;
    ++count.accepted;
    if (evaluated(claim, seed) != Truth::Differs) return;
    ++count.told_apart;
    ADD_FAILURE() << how << "\n" << to_string(claim);
}

TEST(Campaign, CorruptedRulesAreNotBelieved) {
    const Shipped all = shipped_rules();
    RandomStream random(campaign_seed() + 11, "rules");
    uint64_t drawn = 0;
    Count count;
    for (int i = 0; count.read < campaign() && i < 40 * campaign(); ++i) {
        const Rule& rule = all.rules[random.bits(drawn++) % all.rules.size()];
        ++count.tried;
        Rule changed;
        if (random.bits(drawn++) % 2) {
            std::vector<Mutant> mutants = mutants_of(rule);
            if (mutants.empty()) continue;
            changed = mutants[random.bits(drawn++) % mutants.size()].rule;
        } else {
            const std::string text = to_string(rule);
            const size_t colon = text.find(": ");
            Result<Rules> read =
                read_rules(text.substr(0, colon + 2) + corrupted(text.substr(colon + 2), random, drawn), "corrupted");
            if (!read.ok() || read->size() != 1) continue;
            changed = std::move((*read)[0]);
        }
        changed.name = rule.name;
        if (to_string(changed) == to_string(rule)) continue;
        ++count.read;
        Claim claim = all.claim(rule);
        claim.rule = changed;
        judge(claim, verify_rule(changed, all.certificates).ok(), drawn, count, "verified");
        Claim bare = claim;
        bare.rule.conditions.clear();
        Result<Proof> proof = prove(bare);
        judge(bare, proof.ok() && proof->proved(), drawn, count, "proved");
    }
    count.print("rules");
    EXPECT_EQ(count.told_apart, 0) << "seed " << campaign_seed();
    EXPECT_GE(count.read, campaign() / 2);
}

TEST(Campaign, CorruptedCertificatesAreNotBelieved) {
    const Shipped all = shipped_rules();
    RandomStream random(campaign_seed() + 13, "certificates");
    uint64_t drawn = 0;
    Count count;
    for (int i = 0; count.read < campaign() && i < 40 * campaign(); ++i) {
        const Rule& rule = all.rules[random.bits(drawn++) % all.rules.size()];
        ++count.tried;
        std::string entry = certificate_entry(all.claim(rule), all.certificates.at(rule.name).certificate);
        // Of the rule, or of one that it is not the proof of; one to three tokens of the shapes or the steps.
        const Rule* about = &rule;
        Rule changed;
        if (random.bits(drawn++) % 2) {
            std::vector<Mutant> mutants = mutants_of(rule);
            if (!mutants.empty()) {
                changed = mutants[random.bits(drawn++) % mutants.size()].rule;
                changed.name = rule.name;
                about = &changed;
            }
        }
        const size_t head = entry.find('\n') + 1;
        std::string body = entry.substr(head, entry.size() - head - 4);
        for (uint64_t n = random.bits(drawn++) % 3; n-- != UINT64_MAX;) body = corrupted(body, random, drawn);
        Result<Certificates> read =
            read_certificates(entry.substr(0, head) + body + (body.ends_with("\n") ? "" : "\n") + "end\n", "corrupted");
        if (!read.ok() || !read->contains(rule.name)) continue;
        ++count.read;
        const CertificateEntry& now = read->at(rule.name);
        Claim claim{*about, now.shapes};
        for (const auto& [name, list] : now.values) claim.values.emplace(name, list.dims());
        judge(claim, verify_rule(*about, *read).ok(), drawn, count, now.certificate.text);
        // Whatever shapes it is for, what it proves must hold for them.
        Claim bare = claim;
        bare.rule.conditions.clear();
        for (RuleVariable& v : bare.rule.variables)
            v.constraint = claim.shapes.contains(v.name) ? "float" : v.constraint;
        const Rule loose = to_rule(bare);
        if (check_names(bare).ok()) judge(bare, verify_rule(loose, *read).ok(), drawn, count, now.certificate.text);
    }
    count.print("certificates");
    EXPECT_EQ(count.told_apart, 0) << "seed " << campaign_seed();
    EXPECT_GE(count.read, campaign() / 2);
}

}  // namespace
}  // namespace tessera::campaign_test
