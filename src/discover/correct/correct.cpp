#include "discover/correct/correct.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "discover/check/check_certificate.h"
#include "discover/correct/restrict.h"
#include "discover/prove/comprehension.h"

namespace tessera {
namespace {

constexpr int64_t kLargestLeast = 8;  // added to a size so that strips are apart

// The same claim for sizes of these symbols from `least` on.
Claim from_least(const Claim& claim, const std::set<std::string>& symbols, int64_t least) {
    Claim out = claim;
    Bindings more;
    for (const std::string& s : symbols) more.emplace(s, symbol(s) + least);
    for (auto& [name, shape] : out.shapes)
        for (int64_t d = 0; d < shape.rank(); ++d) shape[d] = substitute(shape[d], more);
    return out;
}

// The mutant's output with the strips of one axis after the other replaced, as text: lets and the result.
Result<std::string> corrected_text(const Claim& mutant, const Value& original, const std::vector<Strip>& strips,
                                   const std::vector<int64_t>& axes) {
    const Rule& rule = mutant.rule;
    const TermWriter write(mutant);
    const Shape& shape = original.type().tensor().shape;
    std::vector<std::string> lets;
    for (const auto& [slot, term] : rule.lets)
        lets.push_back(fmt::format("{} = {}", rule.variables[static_cast<size_t>(slot)].name, to_string(term, rule)));
    std::string result = to_string(rule.replacement[0], rule);
    for (size_t i = 0; i < axes.size(); ++i) {
        const std::string name = fmt::format("mutant{}", i);
        lets.push_back(fmt::format("{} = {}", name, result));
        std::vector<std::string> parts;
        Expr at = 0;
        auto keep_until = [&](const Expr& end) {
            if (!(at == end)) parts.push_back(write.slice(name, axes[i], at, end));
        };
        for (const Strip& s : strips) {
            if (s.axis != axes[i]) continue;
            keep_until(s.begin);
            parts.push_back(TRY(write.restricted(original, s)));
            at = s.end;
        }
        keep_until(shape[axes[i]]);
        result = fmt::format("concat({}, axis={})", fmt::join(parts, ", "), axes[i]);
    }
    return fmt::format("{} => {}{}{}{}", to_string(rule.pattern[0], rule), lets.empty() ? "" : "let ",
                       fmt::join(lets, ", "), lets.empty() ? "" : " in ", result);
}

// With a certificate that the checker accepts, or not proved.
Result<Proof> prove_and_check(const Claim& claim, const ProveOptions& options) {
    Proof proof = TRY(prove(claim, options));
    if (!proof.proved()) return proof;
    if (Status checked = check_certificate(claim, proof.certificate); !checked.ok())
        return Proof{Proof::Verdict::Unknown, "its certificate does not hold: " + checked.error().message(), {}};
    return proof;
}

}  // namespace

Result<Claim> with_strips_recomputed(const Claim& mutant, const std::vector<Strip>& strips) {
    const Sides sides = TRY(build_sides(mutant));
    const Differences differences{.strips = strips};
    const std::string text = TRY(corrected_text(mutant, *sides.left[0], strips, differences.axes()));
    Rules read = TRY(read_rules(fmt::format("{} [reassociates, grows]: {}", mutant.rule.name, text), "corrected"));
    Claim claim{std::move(read[0]), mutant.shapes, mutant.values};
    claim.rule.comment = mutant.rule.comment;
    return claim;
}

Result<Corrected> correct(const Claim& mutant, const ProveOptions& options) {
    if (mutant.rule.pattern.size() != 1 || mutant.rule.replacement.size() != 1)
        return Error(Code::E0303, "{}: it has several roots", mutant.rule.name);
    Corrected out{.claim = mutant, .strips = {}, .output = {}, .proof = {}, .refused = {}};
    std::set<std::string> grown;
    for (int64_t least = 0; least <= kLargestLeast; ++least) {
        if (options.until.passed()) {
            out.refused = "there was no more time";
            return out;
        }
        const Claim claim = from_least(mutant, grown, least);
        const Differences differences = TRY(find_differences(claim, options));
        const Sides sides = TRY(build_sides(claim));
        out.output = sides.left[0]->type().tensor().shape;
        if (differences.everywhere_equal) {
            out.claim = claim;
            out.claim.rule.exactness = Exactness::Reassociates;
            out.proof = TRY(prove_and_check(out.claim, options));
            return out;
        }
        for (const Strip& s : differences.strips)
            for (const std::string& name : free_symbols(out.output[s.axis])) grown.insert(name);
        if (grown.empty())
            for (const Dim& d : out.output)
                for (const std::string& name : free_symbols(d)) grown.insert(name);
        out.refused = differences.refused;
        if (!out.refused.empty()) {
            if (differences.refused.find("ordered") != std::string::npos) continue;
            return out;
        }
        Result<Claim> made = with_strips_recomputed(claim, differences.strips);
        if (!made.ok()) {
            out.refused = made.error().message();
            continue;
        }
        Result<Proof> proof = prove_and_check(*made, options);
        if (!proof.ok()) {
            out.refused = proof.error().message();
            continue;
        }
        out.claim = std::move(*made);
        out.strips = differences.strips;
        out.proof = std::move(*proof);
        out.refused = out.proof.reason;
        return out;  // larger sizes would leave the same
    }
    return out;
}

}  // namespace tessera
