// tessera::discover_rules: the enumeration and the proofs of search/ behind the public API, and the files they give.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/output_file.h"
#include "base/protect.h"
#include "discover/correct/originals.h"
#include "discover/correct/picture.h"
#include "discover/discover.h"
#include "tessera/discover.h"

namespace tessera {
namespace {

DiscoveredCounts public_counts(const DiscoverCounts& c) {
    const EnumerateCounts& e = c.enumerated;
    return {.graphs = e.graphs,
            .terms = e.terms,
            .classes = e.classes,
            .raw_pairs = e.raw_pairs,
            .renamed = e.renamed,
            .common_subgraph = e.common,
            .pruned = c.pruned,
            .siblings = c.siblings,
            .irredundant = c.irredundant,
            .proved = c.proved,
            .proved_irredundant = c.proved_irredundant,
            .refuted = c.refuted,
            .unknown = c.unknown,
            .enumerate_seconds = c.enumerate_seconds,
            .prune_seconds = c.prune_seconds,
            .prove_seconds = c.prove_seconds};
}

DiscoveredRule public_rule(const FoundRule& r) {
    return {.name = r.rule.name,
            .text = to_string(r.rule),
            .shapes = shapes_text(r.claim),
            .verdict = std::string(name_of(r.verdict)),
            .exactness = std::string(name_of(r.rule.exactness)),
            .reason = r.reason,
            .certificate = r.certificate.text,
            .tested_sizes = r.bound.sizes,
            .error_log2 = r.bound.per_size,
            .irredundant = r.irredundant,
            .shrinks = r.shrinks,
            .ops = r.ops};
}

struct OutputFiles {
    std::string rules, certificates, tested;
};

OutputFiles files_of(const std::string& out) {
    const std::string stem = out.ends_with(".rules") ? out.substr(0, out.size() - 6) : out;
    return {stem + ".rules", stem + ".cert", stem + ".tested"};
}

// A discovery may take minutes: what cannot be written is said before.
Status check_writable(const OutputFiles& files) {
    for (const std::string& path : {files.rules, files.certificates, files.tested}) TRY(OutputFile::create(path));
    return {};
}

// Proved rules with their certificates beside them, and what is only tested in a file of its own.
Result<std::vector<std::string>> write(const Discovery& found, const OutputFiles& files,
                                       const DiscoverRulesOptions& options) {
    const WriteOptions which{options.all, options.shrinking};
    const std::string head =
        fmt::format("// Found by: tessera discover --ops {} --max-ops {} --seed {}{}{}\n\n", found.ops, found.max_ops,
                    found.seed, options.all ? " --all" : "", options.shrinking ? " --shrinking" : "");
    TRY(write_file(files.rules, head + rules_text(found, Proof::Verdict::Proved, which)));
    TRY(write_file(files.certificates, certificates_text(found, which)));
    std::vector<std::string> written = {files.rules, files.certificates};
    const std::string tested = rules_text(found, Proof::Verdict::Unknown, which);
    if (tested.empty()) return written;
    TRY(write_file(files.tested, head + tested));
    written.push_back(files.tested);
    return written;
}

Result<std::string> originals_of(const std::string& ops) {
    if (ops == "taso") return std::string(built_in_originals());
    std::ifstream file(ops, std::ios::binary);
    if (!file)
        return Error(Code::E0101, "cannot open \"{}\"", ops)
            .hint("with corrected, ops is a file of originals, one a line");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

DiscoveredRule public_rule(const MutantRule& r) {
    DiscoveredRule out{.name = r.rule.name,
                       .text = to_string(r.rule),
                       .shapes = shapes_text(r.corrected.claim),
                       .verdict = std::string(name_of(r.corrected.proof.verdict)),
                       .exactness = std::string(name_of(r.rule.exactness)),
                       .reason = r.corrected.refused,
                       .certificate = r.corrected.proof.certificate.text};
    out.boxes = boxes_text(r.corrected);
    out.picture = boxes_picture(r.corrected, r.sizes);
    return out;
}

Result<DiscoveredRules> discover_corrected_rules(const DiscoverRulesOptions& options) {
    const std::string originals = TRY(originals_of(options.ops));
    MutateOptions how{.most_corrected = 0.5, .most_of_target = 8, .cancel = options.cancel};
    if (options.progress)
        how.progress = [&](std::string_view, size_t done, size_t total) {
            options.progress({"corrected", "proofs", 0, static_cast<int64_t>(done), static_cast<int64_t>(total)});
        };
    const CorrectedRules found = TRY(discover_corrected(originals, how));
    DiscoveredRules out;
    out.ops = options.ops == "taso" ? "the originals that come with Tessera" : options.ops;
    out.counts.terms = found.terms;
    out.counts.raw_pairs = static_cast<int64_t>(found.mutants);
    out.counts.irredundant = out.counts.proved = out.counts.proved_irredundant =
        static_cast<int64_t>(found.rules.size());
    out.counts.unknown = out.counts.raw_pairs - out.counts.proved;
    out.seconds = out.counts.prove_seconds = found.seconds;
    for (const MutantRule& r : found.rules) out.rules.push_back(public_rule(r));
    if (options.out.empty()) return out;
    const OutputFiles files = files_of(options.out);
    TRY(write_file(files.rules, "// Found by: tessera discover --corrected\n\n" + rules_text(found)));
    TRY(write_file(files.certificates, certificates_text(found)));
    out.files = {files.rules, files.certificates};
    return out;
}

Error explained(Error error, const DiscoverRulesOptions& options) {
    if (error.code() != Code::E0410) return error;
    if (options.work_dir.empty()) return std::move(error).hint("with a work folder, an interrupted discovery resumes");
    return std::move(error).hint("the same command resumes from \"{}\"", options.work_dir);
}

}  // namespace

Result<DiscoveredRules> discover_rules(const DiscoverRulesOptions& options) {
    return protect(
        "discover", {.name = "ops.txt", .text = [&] { return options.ops; }}, [&]() -> Result<DiscoveredRules> {
            const auto began = std::chrono::steady_clock::now();
            if (!options.out.empty()) TRY(check_writable(files_of(options.out)));
            if (options.corrected) return discover_corrected_rules(options);
            DiscoverOptions how{.ops = options.ops, .prove = options.prove, .all = options.all};
            how.enumerate.max_ops = options.max_ops;
            how.enumerate.seed = options.seed;
            how.enumerate.threads = options.threads;
            how.enumerate.work_dir = options.work_dir;
            how.enumerate.cancel = options.cancel;
            if (options.progress)
                how.enumerate.progress = [&](const EnumerateOptions::Progress& p) {
                    options.progress({p.world, p.phase, p.level, p.done, p.total, p.terms, p.classes, p.pairs});
                };
            Result<Discovery> result = discover(how);
            if (!result.ok()) return explained(std::move(result).error(), options);
            const Discovery found = std::move(*result);
            DiscoveredRules out;
            out.ops = found.ops;
            out.max_ops = found.max_ops;
            out.seed = found.seed;
            if (found.began_anew)
                out.warnings.push_back(fmt::format(
                    "what \"{}\" held was of another discovery or damaged: this one began anew", options.work_dir));
            if (!options.out.empty()) out.files = TRY(write(found, files_of(options.out), options));
            out.counts = public_counts(found.counts);
            for (const auto& [name, counts] : found.worlds) out.worlds.emplace_back(name, public_counts(counts));
            for (const FoundRule& rule : found.rules) out.rules.push_back(public_rule(rule));
            out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
            return out;
        });
}

}  // namespace tessera
