#include "discover/check/verify_rule.h"

#include <algorithm>
#include <sstream>

#include "discover/check/check_cases.h"
#include "discover/check/check_certificate.h"
#include "discover/check/check_elements.h"
#include "discover/check/check_exactness.h"
#include "discover/check/check_laws.h"
#include "discover/check/check_types.h"

namespace tessera {
namespace {

constexpr std::string_view kElements = "elements\n", kMeanings = "elements by meaning\n", kCase = "case";

// Whether a literal on the left stands for one float only.
bool is_one_float(const Term& t) {
    if (t.form == Term::Form::Number)
        return t.has_point ? static_cast<double>(static_cast<float>(t.number)) == t.number : t.number != 0;
    // Sizes and axes are integers.
    constexpr std::string_view kIndexed[] = {"slice", "reshape", "expand", "tile", "squeeze", "unsqueeze"};
    if (t.form == Term::Form::Op &&
        std::find(std::begin(kIndexed), std::end(kIndexed), t.op->name) != std::end(kIndexed))
        return is_one_float(t.args[0]);
    return std::all_of(t.args.begin(), t.args.end(), is_one_float);
}

// The lines of each case. One stands without a heading.
std::vector<std::string> steps_of_cases(const std::string& steps) {
    std::vector<std::string> out;
    std::istringstream in(steps);
    for (std::string line; std::getline(in, line);) {
        if (line == kCase || out.empty()) out.emplace_back();
        if (line != kCase) out.back() += line + "\n";
    }
    return out;
}

bool choices_agree(const Rule& rule) {
    for (size_t i = 0; i < rule.pattern.size(); ++i)
        if (!checker::equal_choices(rule.pattern[i], rule.replacement[i], rule)) return false;
    return true;
}

// A rule for any rank, by what it says of one element.
Status verify_case(const Rule& rule, const std::string& steps, bool by_meaning) {
    auto refused = [&](std::string why) { return Error(Code::E0305, "{}: {}", rule.name, why).at(rule.source); };
    if (checker::names_large_integer(rule))
        return refused("it names a number of 2^53 or more, which as a double stands for several integers");
    checker::ElementRule element = TRY(checker::element_rule(rule, by_meaning));
    const bool only_integers = checker::of_integers(element.rule);
    const bool one_float = std::all_of(rule.pattern.begin(), rule.pattern.end(), is_one_float);
    Exactness least = element.reorders || by_meaning ? Exactness::Reassociates : Exactness::Exact;
    if (!one_float && checker::of_floats(element.rule)) least = Exactness::Reassociates;
    if (only_integers && !by_meaning && !checker::has_casts(rule)) least = Exactness::Exact;
    if (!element.same) least = std::max(least, checker::rewrite_by_laws(element));
    if (!element.same && only_integers) {
        for (size_t i = 0; i < element.rule.pattern.size(); ++i)
            if (!checker::equal_polynomials(element.rule.pattern[i], element.rule.replacement[i]))
                return refused("its sides are not equal polynomials");
        element.same = true;
    }
    if (!element.same && choices_agree(element.rule)) {
        element.same = true;
        least = std::max(least, Exactness::Reassociates);
    }
    if (element.same) {
        if (!steps.empty()) return refused("nothing is left to prove, and the certificate has steps");
        if (by_meaning) TRY(checker::check_partial(element));
        if (rule.exactness == Exactness::Exact && least != Exactness::Exact)
            return refused("it is said to be exact, and its sides may round differently");
        return {};
    }
    const Claim claim = TRY(checker::claim_of(element));
    TRY(check_certificate(claim, {steps}));
    if (rule.exactness == Exactness::Exact && std::max(least, exactness_of(claim)) != Exactness::Exact)
        return refused("it is said to be exact, and its sides do not do the same operations");
    return {};
}

// Each case has its steps, one after the other.
Status verify_elements(const Rule& rule, const std::string& steps, bool by_meaning) {
    const std::vector<Rule> cases = TRY(checker::cases_of(rule));
    const std::vector<std::string> parts = steps_of_cases(steps);
    if (cases.empty()) return Error(Code::E0305, "{}: its conditions contradict each other", rule.name).at(rule.source);
    if (parts.size() != cases.size() && !(steps.empty() && !cases.empty()))
        return Error(Code::E0305, "{}: the certificate has {} cases, but the rule has {}", rule.name, parts.size(),
                     cases.size())
            .at(rule.source);
    for (size_t i = 0; i < cases.size(); ++i) TRY(verify_case(cases[i], steps.empty() ? steps : parts[i], by_meaning));
    return {};
}

}  // namespace

Status verify_rule(const Rule& rule, const Certificates& certificates) {
    auto refused = [&](std::string why) { return Error(Code::E0305, "{}: {}", rule.name, why).at(rule.source); };
    auto found = certificates.find(rule.name);
    if (found == certificates.end()) return refused("it has no certificate");
    const CertificateEntry& entry = found->second;
    TRY(checker::check_types(rule));
    if (!entry.listed.empty()) return refused("it is listed without a proof: " + entry.listed);
    for (std::string_view kind : {kElements, kMeanings}) {
        const std::string& steps = entry.certificate.text;
        if (!steps.starts_with(kind)) continue;
        if (!entry.shapes.empty() || !entry.values.empty()) return refused("a proof for any rank names no shapes");
        return verify_elements(rule, steps.substr(kind.size()), kind == kMeanings);
    }
    Claim claim{rule, entry.shapes};
    for (const auto& [name, list] : entry.values) claim.values.emplace(name, list.dims());
    TRY(check_names(claim));
    for (size_t i = 0; i < rule.variables.size(); ++i)
        if (entry.shapes.contains(rule.variables[i].name) && rule.variables[i].constraint.empty())
            return refused(fmt::format("it is proved for real numbers only, and {} is not said to be float",
                                       rule.variables[i].name));
    // The conditions must confine the rule to what was proved, attributes included.
    Claim bare = claim;
    bare.rule.conditions.clear();
    Rule needed = to_rule(bare);
    std::vector<std::string> stated;
    for (const Term& c : rule.conditions) stated.push_back(to_string(c, rule));
    for (const Term& c : needed.conditions) {
        std::string text = to_string(c, needed);
        if (std::find(stated.begin(), stated.end(), text) == stated.end())
            return refused(fmt::format("it is proved only where {}, which it does not say", text));
    }
    TRY(check_certificate(claim, entry.certificate));
    if (rule.exactness == Exactness::Exact && exactness_of(claim) != Exactness::Exact)
        return refused("it is said to be exact, and its sides do not do the same operations");
    return {};
}

}  // namespace tessera
