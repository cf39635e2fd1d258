// Discovery covers an op by its definition alone: what docs/add_an_op.md shows for `reverse`, which no set of ops and
// no rule names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "discover/check/verify_rule.h"
#include "discover/discover.h"
#include "search/search_rules.h"
#include "source_dir.h"

namespace tessera::new_op_test {
namespace {

// Without its name, and without conditions.
std::string bare(const Rule& rule) {
    Rule copy = rule;
    copy.conditions.clear();
    for (RuleVariable& v : copy.variables) v.constraint.clear();
    std::string text = to_string(copy);
    return text.substr(text.find(": ") + 2);
}

std::vector<std::string> proved_rules(const Discovery& found) {
    std::vector<std::string> rules;
    for (const FoundRule& r : found.rules)
        if (r.verdict == Proof::Verdict::Proved) rules.push_back(bare(r.rule));
    return rules;
}

TEST(NewOp, IsNamedNowhere) {
    for (const char* set : {"taso", "extended", "worlds"})
        EXPECT_EQ(op_set_text(set).find("reverse"), std::string_view::npos) << set;
    for (const Rule* rule : search_rules())
        EXPECT_EQ(to_string(*rule).find("reverse("), std::string::npos) << rule->name;
}

TEST(NewOp, IsCoveredByItsDefinition) {
    DiscoverOptions options;
    options.ops = source_dir() + "/tutorial/reverse.ops";
    auto found = discover(options);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_THAT(proved_rules(*found),
                testing::IsSupersetOf(
                    {"reverse(reverse(x, axis=1), axis=1) => x",
                     "reverse(transpose(x, perm=[1, 0]), axis=0) => transpose(reverse(x, axis=1), perm=[1, 0])",
                     "concat(reverse(y, axis=1), reverse(x, axis=1), axis=1) => reverse(concat(x, y, axis=1), axis=1)",
                     "matmul(x, reverse(w, axis=0)) => matmul(reverse(x, axis=1), w)",
                     "conv(reverse(a, axis=2), reverse(f, axis=2), dilations=dilations) => "
                     "reverse(conv(a, f, dilations=dilations), axis=2)"}));
    EXPECT_EQ(found->counts.proved_irredundant, found->counts.irredundant);
    EXPECT_EQ(found->counts.refuted, 0);
    auto rules = read_rules(rules_text(*found, Proof::Verdict::Proved), "reverse.rules");
    auto certificates = read_certificates(certificates_text(*found), "reverse.cert");
    ASSERT_TRUE(rules.ok() && certificates.ok());
    for (const Rule& rule : *rules) {
        Status verified = verify_rule(rule, *certificates);
        EXPECT_TRUE(verified.ok()) << (verified.ok() ? "" : verified.error().to_string());
    }
}

TEST(NewOp, IsTakenByName) {
    DiscoverOptions options;
    options.ops = "reverse,transpose,matmul,reduce_sum";
    options.enumerate.max_ops = 2;
    auto found = discover(options);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_THAT(proved_rules(*found),
                testing::IsSupersetOf({"reverse(reverse(x, axis=2), axis=2) => x",
                                       "reduce_sum(reverse(x, axis=0), keepdims=0) => reduce_sum(x, keepdims=0)",
                                       "reverse(matmul(x, w), axis=1) => matmul(x, reverse(w, axis=1))"}));
}

}  // namespace
}  // namespace tessera::new_op_test
