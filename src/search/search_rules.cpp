#include "search/search_rules.h"

#include "base/check.h"

namespace tessera {

namespace {

const Rules& own_rules() {
    static const Rules own = [] {
        Rules all;
        for (const RuleFile& file : search_rule_files()) {
            Result<Rules> rules = read_rules(file.text, fmt::format("{}.rules", file.name));
            CHECK(rules.ok(), "{}", rules.error().to_string());
            for (Rule& r : *rules) all.push_back(std::move(r));
        }
        return all;
    }();
    return own;
}

bool is_corrected(const Rule& rule) { return rule.source.starts_with("corrected.rules"); }

}  // namespace

std::vector<const Rule*> search_rules() {
    std::vector<const Rule*> rules;
    auto add = [&](bool stated) {
        for (const Rule& r : own_rules())
            if ((r.evidence == Evidence::Stated) == stated && !is_corrected(r)) rules.push_back(&r);
    };
    add(true);
    for (const char* file : {"siblings", "merge", "cleanup"})
        for (const Rule& r : built_in_rules(file)) rules.push_back(&r);
    add(false);
    return rules;
}

std::vector<const Rule*> corrected_rules() {
    std::vector<const Rule*> rules;
    for (const Rule& r : own_rules())
        if (is_corrected(r)) rules.push_back(&r);
    return rules;
}

}  // namespace tessera
