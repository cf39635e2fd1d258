// The refuter's own test: what it is for is to find slips in rules, so we make some.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/random.h"
#include "rewrite/mutate_rules.h"
#include "rewrite/refute/refute.h"
#include "source_dir.h"

namespace tessera::mutation_test {
namespace {

constexpr size_t kPerRule = 3;  // TESSERA_ALL_MUTANTS takes them all

// equivalent_mutants.txt: a reason in brackets, then "rule | change" lines of corruptions that it holds for.
std::set<std::string> equivalent_mutants() {
    std::ifstream file(source_dir() + "/test/rewrite/equivalent_mutants.txt");
    EXPECT_TRUE(file.good());
    std::set<std::string> out;
    bool reason = false;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line.starts_with("#")) continue;
        if (line.starts_with("[")) {
            reason = true;
            continue;
        }
        EXPECT_TRUE(reason) << line << " stands under no reason";
        EXPECT_TRUE(out.insert(line).second) << line << " stands there twice";
    }
    return out;
}

// Some of a rule's mutants, whatever else changes.
std::vector<Mutant> chosen(const Rule& rule) {
    std::vector<Mutant> all = mutants_of(rule);
    if (std::getenv("TESSERA_ALL_MUTANTS")) return all;
    auto key = [&](const Mutant& m) { return RandomStream(0, rule.name + m.change).bits(0); };
    std::sort(all.begin(), all.end(), [&](const Mutant& a, const Mutant& b) { return key(a) < key(b); });
    if (all.size() > kPerRule) all.resize(kPerRule);
    return all;
}

TEST(mutants, that_change_meaning_are_refuted) {
    std::set<std::string> equivalent = equivalent_mutants(), sources;
    size_t refuted = 0, never_apply = 0;
    for (const RuleFile& file : built_in_rule_files())
        for (const Rule& rule : built_in_rules(file.name)) {
            if (!sources.insert(rule.source).second) continue;  // one of those that a line stands for
            for (const Mutant& m : chosen(rule)) {
                const std::string name = rule.name + " | " + m.change;
                RefuteOptions options;
                options.instances = 40;
                options.draws = 1500;
                options.minimise = false;
                const bool listed = equivalent.erase(name) > 0;
                Result<Verdict> v = refute(m.rule, options);
                ASSERT_TRUE(v.ok());
                if (v->kind == Verdict::Kind::Holds && !listed) {  // look harder
                    options.instances = 500;
                    options.draws = 10000;
                    options.seed = 1;
                    v = refute(m.rule, options);
                }
                const bool survives = v->kind == Verdict::Kind::Holds;
                EXPECT_FALSE(survives && !listed) << name << "\n  " << to_string(m.rule) << "\nwas not refuted";
                // Few graphs may match one that changes nothing.
                const bool fails = v->kind == Verdict::Kind::Refuted || v->instances == 0;
                EXPECT_FALSE(fails && listed) << name << " is listed as equivalent but does not survive\n"
                                              << v->to_string();
                refuted += v->kind == Verdict::Kind::Refuted;
                never_apply += v->kind == Verdict::Kind::Untested;
            }
        }
    if (!std::getenv("TESSERA_ALL_MUTANTS"))
        for (const std::string& name : equivalent) ADD_FAILURE() << name << " is listed, but there is no such mutant";
    EXPECT_GE(refuted, 300u) << never_apply << " more never apply";
    RecordProperty("refuted", static_cast<int>(refuted));
    RecordProperty("never_apply", static_cast<int>(never_apply));
}

}  // namespace
}  // namespace tessera::mutation_test
