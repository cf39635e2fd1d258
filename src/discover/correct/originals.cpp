#include "discover/correct/originals.h"

#include <chrono>
#include <set>

#include "discover/correct/picture.h"
#include "discover/prove/comprehension.h"

namespace tessera {
namespace {

constexpr std::string_view kOriginals = R"(
// Pairs of images, large images, and images with one axis to split; kernels of 3 and 5.
conv(x, w, pads=[1, 1, 1, 1]) where x: [2*N,C,H,W], w: [M,C,3,3]
conv(x, w, pads=[1, 1, 1, 1]) where x: [N,C,2*H,2*W], w: [M,C,3,3]
conv(x, w) where x: [N,C,2*H,2*W], w: [M,C,3,3]
conv(x, w, pads=[2, 2, 2, 2]) where x: [N,C,2*H,2*W], w: [M,C,5,5]
// Dilated ones, by phases.
conv(x, w, pads=[2, 2, 2, 2], dilations=[2, 2]) where x: [N,C,2*H,2*W], w: [M,C,3,3]
conv(x, w, pads=[1, 2, 1, 2], dilations=[1, 2]) where x: [N,C,H,2*W], w: [M,C,3,3]
conv(x, w, pads=[2, 1, 2, 1], dilations=[2, 1]) where x: [N,C,2*H,W], w: [M,C,3,3]
conv(x, w, pads=[1, 1, 1, 1], dilations=[2, 2]) where x: [N,C,2*H,2*W], w: [M,C,3,3]
// Strided ones.
conv(x, w, pads=[1, 1, 1, 1], strides=[2, 2]) where x: [N,C,2*H,2*W], w: [M,C,3,3]
conv(x, w, strides=[2, 2]) where x: [N,C,2*H,2*W], w: [M,C,1,1]
// One row of samples.
conv(x, w, pads=[1, 1]) where x: [N,C,2*L], w: [M,C,3]
conv(x, w, pads=[2, 2], dilations=[2]) where x: [N,C,2*L], w: [M,C,3]
// Stacks of matrices.
matmul(x, w) where x: [B,M,K], w: [K,N]
)";

}  // namespace

std::string_view built_in_originals() { return kOriginals; }

Result<CorrectedRules> discover_corrected(std::string_view originals, const MutateOptions& given) {
    const auto began = std::chrono::steady_clock::now();
    MutateOptions options = given;
    options.least_agreement_at_hand = 2;  // there are no sizes at hand
    options.most_work = 1e9;
    std::vector<MutationTarget> targets;
    for (size_t at = 0; at < originals.size();) {
        const size_t end = std::min(originals.find('\n', at), originals.size());
        std::string line(originals.substr(at, end - at));
        at = end + 1;
        line = line.substr(0, line.find("//"));
        const size_t where = line.find(" where ");
        if (line.find_first_not_of(" \t\r") == line.npos) continue;
        if (where == line.npos)
            return Error(Code::E0301, "\"{}\" is not an original: expected a term, where, and shapes", line)
                .hint("conv(x, w) where x: [N,C,2*H,W], w: [M,C,3,3]");
        const std::string term = line.substr(0, where);
        Claim claim = TRY(read_claim(
            fmt::format("{}: {} => {} {}", term.substr(0, term.find('(')), term, term, line.substr(where + 1))));
        targets.push_back({std::move(claim), {}, {}, 1});
        for (const std::string& s : size_symbols(targets.back().claim)) targets.back().sizes[s] = 64;
    }
    CorrectedRules found;
    Mutation counts;
    std::set<std::string> names;
    for (size_t i = 0; i < targets.size(); ++i) {
        if (options.cancel && *options.cancel) return Error(Code::E0410, "interrupted");
        if (options.progress) options.progress(to_string(targets[i].claim), i, targets.size());
        for (MutantRule& r : mutant_rules_of(targets[i], options, counts))
            if (names.insert(r.rule.name).second) found.rules.push_back(std::move(r));
    }
    found.originals = counts.targets;
    found.mutants = counts.mutants;
    found.terms = counts.terms;
    found.refused = std::move(counts.refused);
    found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return found;
}

std::string rules_text(const CorrectedRules& found) {
    std::string text;
    for (const MutantRule& r : found.rules)
        text += fmt::format("// {} where {}\n{}\n", boxes_text(r.corrected), shapes_text(r.corrected.claim),
                            to_string(r.rule));
    return text;
}

std::string certificates_text(const CorrectedRules& found) {
    std::string text;
    for (const MutantRule& r : found.rules) text += certificate_entry(r.corrected.claim, r.corrected.proof.certificate);
    return text;
}

}  // namespace tessera
