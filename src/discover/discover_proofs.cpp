#include "discover/discover_proofs.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/thread_pool.h"
#include "discover/believe.h"
#include "discover/check/check_certificate.h"
#include "discover/check/check_exactness.h"
#include "rewrite/refute/refute.h"

namespace tessera {
namespace {

constexpr size_t kBatch = 256;

// Signs may agree by chance on a few small tensors, which random graphs tell.
void try_to_refute(FoundRule& found) {
    if (floats_differ(found.claim).value_or(false)) {
        found.verdict = Proof::Verdict::Refuted;
        found.reason = "random numbers refute it";
        return;
    }
    RefuteOptions options;
    options.instances = 16;
    options.draws = 400;
    options.minimise = false;
    Result<Verdict> verdict = refute(to_rule(found.claim), options);
    if (!verdict.ok() || verdict->kind != Verdict::Kind::Refuted) return;
    found.verdict = Proof::Verdict::Refuted;
    found.reason = "random graphs refute it";
}

// Small, for there are thousands, and the terms were evaluated at several sizes before; whoever reads the file spends
// more.
RefuteOptions found_effort() {
    RefuteOptions effort;
    effort.instances = 1;
    effort.draws = 12;
    effort.minimise = false;
    return effort;
}

void accept(FoundRule& found, Proof proof) {
    found.verdict = proof.verdict;
    found.reason = std::move(proof.reason);
    found.certificate = std::move(proof.certificate);
    found.claim.rule.exactness = exactness_of(found.claim);
}

// The most general form of the claim that proves. Where the first one does not, the claim as it was found is tried
// before the others, since few of them hold where it does not. Whether a window may be of nothing depends on which of
// its attributes are variables: where the right side is undefined for that, it is so for other sizes too.
void prove_one(FoundRule& found) {
    const std::string as_found = to_string(found.claim);
    std::optional<Result<Proof>> own;
    auto own_proved = [&] {
        if (!own) own.emplace(prove(found.claim));
        return own->ok() && (*own)->proved();
    };
    std::optional<std::pair<Claim, Proof>> general;
    std::set<std::set<std::string>> undefined;  // with these variables
    bool first = true;
    auto settle = [&](const Claim& form) {
        if (to_string(form) == as_found || (!first && !own_proved())) return true;
        first = false;
        std::set<std::string> variables;
        for (const auto& [name, value] : form.values) variables.insert(name);
        if (undefined.contains(variables)) return false;
        ProveOptions options;
        options.give_up = [&form] { return floats_soon_differ(form); };
        Result<Proof> proof = prove(form, options);
        if (proof.ok() && proof->undefined) undefined.insert(std::move(variables));
        if (proof.ok() && proof->proved()) general.emplace(form, std::move(*proof));
        return general.has_value();
    };
    if (found.irredundant) each_general(found.claim, settle);
    if (general) {
        found.claim = std::move(general->first);
        return accept(found, std::move(general->second));
    }
    if (own_proved()) return accept(found, std::move(**own));
    found.reason = own->ok() ? (*own)->reason : own->error().message();
    if (own->ok()) try_to_refute(found);
}

std::filesystem::path notes_path(const DiscoverOptions& options, std::string_view world) {
    return std::filesystem::path(options.enumerate.work_dir) / fmt::format("{}.proofs", world);
}

// What an earlier run noted: "= verdict", the claim as it was found, the claim as it was proved, the certificate.
class ProofNotes {
  public:
    ProofNotes(const DiscoverOptions& options, std::string_view world) {
        if (options.enumerate.work_dir.empty()) return;
        path_ = notes_path(options, world);
        std::ifstream in(path_);
        std::string line;
        while (std::getline(in, line)) {
            if (!line.starts_with("= ")) continue;
            Note note{line.substr(2), {}, {}};
            std::string found;
            bool whole = bool(std::getline(in, found)) && bool(std::getline(in, note.claim));
            while (whole && (whole = bool(std::getline(in, line))) && line != "end") note.certificate += line + "\n";
            if (whole) notes_.emplace(std::move(found), std::move(note));
        }
    }

    bool recall(FoundRule& rule) const {
        auto it = notes_.find(to_string(rule.claim));
        if (it == notes_.end()) return false;
        if (it->second.verdict == "proved") {
            // A claim with attributes that vary does not read back: such a rule is proved once more.
            Result<Claim> claim = read_claim(it->second.claim);
            if (!claim.ok() || to_string(*claim) != it->second.claim) return false;
            if (!check_certificate(*claim, {it->second.certificate}).ok()) return false;  // the file was damaged
            rule.claim = std::move(*claim);
            rule.claim.rule.exactness = exactness_of(rule.claim);
            rule.verdict = Proof::Verdict::Proved;
            rule.certificate.text = it->second.certificate;
        } else if (it->second.verdict == "refuted") {
            rule.verdict = Proof::Verdict::Refuted;
        }
        return true;
    }

    void add(const std::string& found, const FoundRule& rule) {
        if (path_.empty()) return;
        text_ += fmt::format("= {}\n{}\n{}\n{}end\n", name_of(rule.verdict), found, to_string(rule.claim),
                             rule.certificate.text.empty() || rule.certificate.text.ends_with("\n")
                                 ? rule.certificate.text
                                 : rule.certificate.text + "\n");
    }
    void flush() {
        if (text_.empty()) return;
        std::ofstream(path_, std::ios::app) << text_;
        text_.clear();
    }

  private:
    struct Note {
        std::string verdict, claim, certificate;
    };
    std::filesystem::path path_;
    std::map<std::string, Note> notes_;
    std::string text_;
};

}  // namespace

Status prove_found(const DiscoverOptions& options, const World& of, std::vector<FoundRule>& rules,
                   DiscoverCounts& counts) {
    const EnumerateOptions& e = options.enumerate;
    const std::string_view world = of.name;
    const int sizes = static_cast<int>(of.assignments.size());
    ProofNotes notes(options, world);
    for (size_t begin = 0; options.prove && begin < rules.size(); begin += kBatch) {
        if (e.cancel && *e.cancel) return Error(Code::E0410, "interrupted");
        if (e.progress)
            e.progress({world, "proofs", 0, static_cast<int64_t>(begin), static_cast<int64_t>(rules.size()),
                        counts.enumerated.terms, counts.enumerated.classes, counts.pruned});
        const size_t count = std::min(kBatch, rules.size() - begin);
        std::vector<std::string> found(count);
        std::vector<uint8_t> known(count, 0);
        std::vector<Status> confirmed(count);
        Team team(e.threads);
        std::atomic<size_t> next{0};  // one by one: some take a hundred times as long as others
        auto prove_at = [&](size_t i) {
            FoundRule& rule = rules[begin + i];
            found[i] = to_string(rule.claim);
            known[i] = notes.recall(rule);
            if (!known[i]) prove_one(rule);
            if (rule.verdict == Proof::Verdict::Unknown) rule.bound = test_bound(rule.claim, sizes);
            rule.rule = to_rule(rule.claim);
            rule.rule.evidence = rule.verdict == Proof::Verdict::Proved ? Evidence::Proved : Evidence::Tested;
            if (rule.verdict != Proof::Verdict::Proved || known[i]) return;
            if (auto v = confirm(rule.rule, rule.certificate.text, found_effort()); !v.ok()) confirmed[i] = v.error();
        };
        team.each(team.threads(), [&](int64_t, int) {
            for (size_t i; (i = next++) < count;) prove_at(i);
        });
        for (const Status& status : confirmed) TRY(status);
        for (size_t i = 0; i < count; ++i)
            if (!known[i]) notes.add(found[i], rules[begin + i]);
        notes.flush();
    }
    for (const FoundRule& r : rules) {
        const bool proved = r.verdict == Proof::Verdict::Proved;
        counts.proved += proved;
        counts.proved_irredundant += proved && r.irredundant;
        counts.refuted += r.verdict == Proof::Verdict::Refuted;
        counts.unknown += r.verdict == Proof::Verdict::Unknown;
    }
    return {};
}

void forget_proofs(const DiscoverOptions& options, std::string_view world) {
    std::error_code ignored;
    if (!options.enumerate.work_dir.empty()) std::filesystem::remove(notes_path(options, world), ignored);
}

}  // namespace tessera
