#include "search/search_rules.h"

#include "base/check.h"

namespace tessera {

std::vector<const Rule*> search_rules(bool corrected) {
    static const Rules own = [] {
        Rules all;
        for (const RuleFile& file : search_rule_files()) {
            Result<Rules> rules = read_rules(file.text, fmt::format("{}.rules", file.name));
            CHECK(rules.ok(), "{}", rules.error().to_string());
            for (Rule& r : *rules) all.push_back(std::move(r));
        }
        return all;
    }();
    std::vector<const Rule*> rules;
    auto add = [&](bool stated) {
        for (const Rule& r : own)
            if ((r.evidence == Evidence::Stated) == stated && (corrected || !r.source.starts_with("corrected.rules")))
                rules.push_back(&r);
    };
    add(true);
    for (const char* file : {"siblings", "merge", "cleanup"})
        for (const Rule& r : built_in_rules(file)) rules.push_back(&r);
    add(false);
    return rules;
}

}  // namespace tessera
