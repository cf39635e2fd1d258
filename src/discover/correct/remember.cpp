#include "discover/correct/remember.h"

#include <sstream>

#include "discover/check/check_certificate.h"
#include "discover/correct/boxes.h"
#include "discover/prove/comprehension.h"

namespace tessera {
namespace {

bool take(std::string_view& line, std::string_view word) {
    if (!line.starts_with(word)) return false;
    line.remove_prefix(word.size());
    return true;
}

// "S0=1 S2=28"
bool read_sizes(std::string_view line, SymbolValues& sizes) {
    std::istringstream words{std::string(line)};
    for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        if (equals == word.npos) return false;
        sizes[word.substr(0, equals)] = std::strtoll(word.c_str() + equals + 1, nullptr, 10);
    }
    return true;
}

// "2: H + 1: H + 3"
std::optional<Strip> read_strip(std::string_view line) {
    const size_t first = line.find(": "), second = first == line.npos ? first : line.find(": ", first + 2);
    if (second == line.npos) return {};
    const auto begin = parse_dim(line.substr(first + 2, second - first - 2)), end = parse_dim(line.substr(second + 2));
    if (!begin || !end) return {};
    return Strip{std::strtoll(std::string(line.substr(0, first)).c_str(), nullptr, 10), *begin, *end};
}

// Whether the claim holds, by its certificate or by the exact test.
bool holds(const MutantRule& rule) {
    if (rule.corrected.proved()) return check_certificate(rule.corrected.claim, rule.corrected.proof.certificate).ok();
    const Result<Boxes> boxes = compare_boxes(rule.corrected.claim);
    return !rule.for_all_sizes && boxes.ok() && boxes->equal();
}

bool finish(MutantRule& rule, const std::vector<std::string>& where) {
    const Result<Sides> sides = build_sides(rule.corrected.claim);
    if (!sides.ok() || !holds(rule)) return false;
    rule.corrected.output = sides->left[0]->type().tensor().shape;
    rule.rule = to_rule(rule.corrected.claim);
    rule.rule.evidence = rule.corrected.proved() ? Evidence::Proved : Evidence::Tested;
    rule.where = where;
    return true;
}

}  // namespace

std::string remembered_key(const MutationTarget& target, const MutateOptions& options) {
    std::string key = fmt::format("{} {} {} {} {}", options.most_corrected, options.most_work, options.most_of_target,
                                  options.least_agreement_at_hand, to_string(target.claim));
    for (const auto& [name, size] : target.sizes) key += fmt::format(" {}={}", name, size);
    return key;
}

std::string remembered_text(const std::string& key, const std::vector<MutantRule>& rules) {
    std::string text = key + "\n";
    for (const MutantRule& r : rules) {
        text += fmt::format("claim {}\nshare {}\nsizes", to_string(r.corrected.claim), r.share);
        for (const auto& [name, size] : r.sizes) text += fmt::format(" {}={}", name, size);
        text += r.for_all_sizes ? "\nfor all\n" : "\n";
        for (const Strip& s : r.corrected.strips)
            text += fmt::format("strip {}: {}: {}\n", s.axis, to_string(s.begin), to_string(s.end));
        if (r.corrected.proved()) {
            std::istringstream lines(r.corrected.proof.certificate.text);
            for (std::string line; std::getline(lines, line);) text += "| " + line + "\n";
        }
        text += "end\n";
    }
    return text + "done\n";
}

std::optional<std::vector<MutantRule>> read_remembered(const std::string& key, const std::string& text,
                                                       const std::vector<std::string>& where) {
    std::istringstream lines(text);
    std::string whole;
    if (!std::getline(lines, whole) || whole != key) return {};
    std::vector<MutantRule> rules;
    std::optional<MutantRule> open;
    while (std::getline(lines, whole)) {
        std::string_view line = whole;
        if (line == "done") return open ? std::nullopt : std::optional(std::move(rules));
        if (take(line, "claim ")) {
            Result<Claim> claim = read_claim(line);
            if (open || !claim.ok()) return {};
            open.emplace();
            open->corrected.claim = std::move(*claim);
            open->for_all_sizes = false;
        } else if (!open) {
            return {};
        } else if (take(line, "share ")) {
            open->share = std::strtod(line.data(), nullptr);
        } else if (take(line, "sizes")) {
            if (!read_sizes(line, open->sizes)) return {};
        } else if (line == "for all") {
            open->for_all_sizes = true;
        } else if (take(line, "strip ")) {
            std::optional<Strip> strip = read_strip(line);
            if (!strip) return {};
            open->corrected.strips.push_back(std::move(*strip));
        } else if (take(line, "| ")) {
            open->corrected.proof.verdict = Proof::Verdict::Proved;
            open->corrected.proof.certificate.text += std::string(line) + "\n";
        } else if (line == "end") {
            if (!finish(*open, where)) return {};
            rules.push_back(std::move(*open));
            open.reset();
        } else {
            return {};
        }
    }
    return {};  // it ends early
}

}  // namespace tessera
