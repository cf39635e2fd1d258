#include "discover/believe.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "discover/check/verify_rule.h"
#include "discover/discover_bound.h"

namespace tessera {
namespace {

constexpr int kInstances = 300;   // graphs for each rule
constexpr int64_t kDraws = 6000;  // before it is given up
constexpr double kSeconds = 20;   // likewise

constexpr const char* kReportBoth = "this is a fault of tessera, not of your rule; please report it with both";

Claim claim_of(const Rule& rule, const CertificateEntry& entry) {
    Claim claim{rule, entry.shapes};
    for (const auto& [name, list] : entry.values) claim.values.emplace(name, list.dims());
    return claim;
}

}  // namespace

RefuteOptions refuter_effort(const std::atomic<bool>* cancel) {
    RefuteOptions effort;
    effort.instances = kInstances;
    effort.draws = kDraws;
    effort.seconds = kSeconds;
    effort.cancel = cancel;
    return effort;
}

Result<Verdict> confirm(const Rule& rule, std::string_view proof, const RefuteOptions& effort) {
    Verdict verdict = TRY(refute(rule, effort));
    if (verdict.kind != Verdict::Kind::Refuted) return verdict;
    return Error(Code::E0802, "{}: its certificate replays, but this graph refutes it: {}", rule.name,
                 verdict.counterexample->difference)
        .at(rule.source)
        .note("the rule: {}\nthe certificate: {}\nthe counterexample, seed {}:\n{}", to_string(rule), proof,
              verdict.seed, verdict.counterexample->to_string())
        .hint("{}", kReportBoth);
}

Result<Belief> believe(const Rule& rule, const Certificates& certificates, const RefuteOptions& effort) {
    auto entry = certificates.find(rule.name);
    Belief belief;
    belief.proved = entry != certificates.end() && entry->second.listed.empty();
    if (belief.proved) {
        TRY(verify_rule(rule, certificates));
        belief.verdict = TRY(confirm(rule, entry->second.certificate.text, effort));
        // Where no graph matches by chance, the shapes of the proof say which do.
        if (belief.verdict.kind == Verdict::Kind::Untested && !entry->second.shapes.empty()) {
            std::optional<bool> differ = floats_differ(claim_of(rule, entry->second));
            if (differ == false) return belief;
            if (differ == true)
                return Error(Code::E0802, "{}: its certificate replays, but random numbers of its shapes refute it",
                             rule.name)
                    .at(rule.source)
                    .note("the rule: {}\nthe certificate: {}", to_string(rule), entry->second.certificate.text)
                    .hint("{}", kReportBoth);
        }
    } else {
        if (rule.evidence == Evidence::Proved)
            return Error(Code::E0305, "{}: it is tagged proved, but has no certificate", rule.name)
                .at(rule.source)
                .hint("put its certificate into the .cert file beside the rules; without the tag it is only tested");
        belief.verdict = TRY(refute(rule, effort));
    }
    TRY(as_status(rule, belief.verdict));
    return belief;
}

Status believe_all(const Rules& rules, const Certificates& certificates, const std::atomic<bool>* cancel) {
    const RefuteOptions effort = refuter_effort(cancel);
    std::vector<Status> all(rules.size());
    Team team;
    team.each(static_cast<int64_t>(rules.size()), [&](int64_t i, int) {
        if (cancel && cancel->load(std::memory_order_relaxed)) {
            all[i] = Error(Code::E0410, "interrupted");
            return;
        }
        if (Result<Belief> belief = believe(rules[i], certificates, effort); !belief.ok()) all[i] = belief.error();
    });
    for (const Status& status : all) TRY(status);
    return {};
}

}  // namespace tessera
