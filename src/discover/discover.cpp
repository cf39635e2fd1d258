#include "discover/discover.h"

#include <chrono>
#include <filesystem>
#include <set>

#include "base/hash.h"
#include "base/output_file.h"
#include "base/thread_pool.h"
#include "discover/discover_proofs.h"
#include "discover/enumerate/prune_derived.h"
#include "discover/enumerate/siblings.h"

namespace tessera {
namespace {

double seconds_since(std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

void add(EnumerateCounts& to, const EnumerateCounts& more) {
    to.terms += more.terms;
    to.classes += more.classes;
    to.graphs += more.graphs;
    to.raw_pairs += more.raw_pairs;
    to.renamed += more.renamed;
    to.common += more.common;
}

void add(DiscoverCounts& to, const DiscoverCounts& more) {
    add(to.enumerated, more.enumerated);
    to.pruned += more.pruned;
    to.siblings += more.siblings;
    to.irredundant += more.irredundant;
    to.proved += more.proved;
    to.proved_irredundant += more.proved_irredundant;
    to.refuted += more.refuted;
    to.unknown += more.unknown;
    to.enumerate_seconds += more.enumerate_seconds;
    to.prune_seconds += more.prune_seconds;
    to.prove_seconds += more.prove_seconds;
}

// Nodes that the terms take, each subterm once.
size_t distinct_ops(const std::vector<Term>& terms) {
    const Rule nameless;
    std::set<std::string> seen;
    auto walk = [&](const auto& self, const Term& t) -> std::string {
        if (t.form != Term::Form::Op) return t.form == Term::Form::Variable ? t.name : to_string(t, nameless);
        std::string text = t.name + "(";
        for (const Term& arg : t.args) text += self(self, arg) + ",";
        for (const auto& [name, value] : t.attrs) text += name + "=" + to_string(value, nameless) + ",";
        seen.insert(text);
        return text + fmt::format("){}", t.output);
    };
    for (const Term& t : terms) walk(walk, t);
    return seen.size();
}

// One world: from its pairs to claims.
class WorldDiscovery {
  public:
    WorldDiscovery(const OpSet& set, const World& world, const DiscoverOptions& options)
        : options_(options), terms_(set, world, options.enumerate) {}

    Result<std::vector<FoundRule>> run(DiscoverCounts& counts) {
        auto began = std::chrono::steady_clock::now();
        TRY(terms_.run());
        counts.enumerated = terms_.counts();
        counts.enumerate_seconds = seconds_since(began);

        began = std::chrono::steady_clock::now();
        std::vector<TermPair> pairs = distinct(terms_.pairs());
        const std::vector<TermPair> kept = irredundant_of(pairs);
        std::vector<Siblings> siblings = find_siblings(terms_, terms_.pairs(), kept);
        std::set<std::pair<TermNode, TermNode>> needed;
        for (const TermPair& p : kept) needed.emplace(p.left, p.right);
        std::vector<FoundRule> rules;
        for (const TermPair& pair : pairs) {
            const bool irredundant = needed.contains({pair.left, pair.right});
            if (!irredundant && !options_.all) {
                ++counts.pruned;
                continue;
            }
            std::optional<FoundRule> rule = to_found(rule_text(terms_, pair), pair);
            if (!rule) continue;
            rule->irredundant = irredundant;
            ++counts.pruned;
            counts.irredundant += irredundant;
            rules.push_back(std::move(*rule));
        }
        for (const Siblings& s : siblings) {
            std::optional<FoundRule> rule = to_found(rule_text(terms_, s), s.pair, "-siblings");
            if (!rule) continue;
            ++counts.pruned;
            ++counts.siblings;
            ++counts.irredundant;
            rules.push_back(std::move(*rule));
        }
        counts.prune_seconds = seconds_since(began);
        return rules;
    }

    bool began_anew() const { return terms_.began_anew(); }

  private:
    const DiscoverOptions& options_;
    Enumeration terms_;

    std::vector<TermPair> distinct(const std::vector<TermPair>& pairs) {
        std::vector<Fingerprint> forms(pairs.size());
        Team team(options_.enumerate.threads);
        team.each(static_cast<int64_t>(pairs.size()),
                  [&](int64_t i, int) { forms[i] = canonical_form(terms_, pairs[i]); });
        std::set<Fingerprint> seen;
        std::vector<TermPair> kept;
        for (size_t i = 0; i < pairs.size(); ++i) {
            if (forms[i].high == forms[i].low || !seen.insert(forms[i]).second) continue;
            kept.push_back(pairs[i]);
        }
        return kept;
    }

    // Level by level, then once more among all: a rule of many ops may give one of few, whose sides share subterms.
    std::vector<TermPair> irredundant_of(const std::vector<TermPair>& pairs) {
        KnownPairs known(terms_), all(terms_);
        std::vector<TermPair> kept;
        for (int level = 1; level <= options_.enumerate.max_ops; ++level) {
            std::vector<TermPair> here;
            for (const TermPair& p : pairs)
                if (p.left_size == level) here.push_back(p);
            std::vector<TermPair> more = irredundant(terms_, std::move(here), known, options_.enumerate.threads);
            kept.insert(kept.end(), more.begin(), more.end());
        }
        return irredundant(terms_, std::move(kept), all, options_.enumerate.threads);
    }

    std::optional<FoundRule> to_found(const std::string& text, const TermPair& pair, std::string_view end = "") {
        if (text.empty()) return std::nullopt;
        const Fingerprint form = canonical_form(terms_, pair);
        const std::string name = fmt::format("{}-{:010x}{}", terms_.world().name, mix(form.high, form.low) >> 24, end);
        Result<Rules> read = read_rules(fmt::format("{} [reassociates]: {}", name, text), "found");
        if (!read.ok()) return std::nullopt;
        FoundRule found;
        found.claim.rule = std::move((*read)[0]);
        const size_t left = distinct_ops(found.claim.rule.pattern), right = distinct_ops(found.claim.rule.replacement);
        found.claim.rule.grows = right > left;
        found.shrinks = right < left || found.claim.rule.pattern.size() > 1;
        for (const World::Variable& v : terms_.world().variables)
            for (const RuleVariable& used : found.claim.rule.variables)
                if (used.name == v.name) found.claim.shapes.emplace(v.name, v.shape);
        found.rule = found.claim.rule;
        found.ops = pair.left_size;
        return found;
    }
};

Status make_folder(const std::string& path) {
    std::error_code failed;
    std::filesystem::create_directories(path, failed);
    if (failed) return Error(Code::E0105, "cannot make the folder \"{}\": {}", path, failed.message());
    return OutputFile::create(std::filesystem::path(path) / "progress").ok()
               ? Status()
               : Error(Code::E0105, "cannot write to the folder \"{}\"", path).hint("name another work folder");
}

std::string without_name(const Rule& rule) {
    Rule nameless = rule;
    nameless.name.clear();
    return to_string(nameless);
}

}  // namespace

Result<Discovery> discover(const DiscoverOptions& options) {
    const OpSet set = TRY(find_op_set(options.ops));
    Discovery found;
    found.ops = options.ops;
    found.max_ops = options.enumerate.max_ops;
    found.seed = options.enumerate.seed;
    if (found.max_ops < 1 || found.max_ops > 4)
        return Error(Code::E0501, "cannot enumerate terms of {} ops", found.max_ops).hint("choose 1 to 4");
    std::set<std::string> seen, names;  // pairs of several attributes may have become one rule
    if (!options.enumerate.work_dir.empty()) TRY(make_folder(options.enumerate.work_dir));
    for (const World& world : set.worlds) {
        DiscoverCounts counts;
        WorldDiscovery here(set, world, options);
        std::vector<FoundRule> rules = TRY(here.run(counts));
        found.began_anew = found.began_anew || here.began_anew();
        const auto began = std::chrono::steady_clock::now();
        TRY(prove_found(options, world, rules, counts));
        counts.prove_seconds = seconds_since(began);
        add(found.counts, counts);
        found.worlds.emplace_back(world.name, counts);
        for (FoundRule& r : rules)
            if (seen.insert(without_name(r.rule)).second) {
                std::string name = r.rule.name;  // several siblings may come of one pair
                for (int i = 2; !names.insert(name).second; ++i) name = fmt::format("{}-{}", r.rule.name, i);
                r.rule.name = r.claim.rule.name = name;
                found.rules.push_back(std::move(r));
            }
    }
    for (const World& world : set.worlds) forget_proofs(options, world.name);
    return found;
}

bool FoundRule::is_written(const WriteOptions& options) const {
    return (irredundant || options.all) && (shrinks || !options.shrinking);
}

std::string rules_text(const Discovery& found, Proof::Verdict verdict, const WriteOptions& options) {
    std::string text;
    for (const FoundRule& r : found.rules)
        if (r.verdict == verdict && r.is_written(options)) {
            if (verdict == Proof::Verdict::Unknown) text += fmt::format("// {}\n", to_string(r.bound));
            text += to_string(r.rule) + "\n";
        }
    return text;
}

std::string certificates_text(const Discovery& found, const WriteOptions& options) {
    std::string text;
    for (const FoundRule& r : found.rules)
        if (r.verdict == Proof::Verdict::Proved && r.is_written(options))
            text += certificate_entry(r.claim, r.certificate);
    return text;
}

}  // namespace tessera
