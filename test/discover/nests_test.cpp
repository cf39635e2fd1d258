// Large terms: each part is read and rewritten once, so that the checker's bound on steps is not met.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "discover/prove/prove_rule.h"

namespace tessera::nests_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string filled(std::string text, const std::string& with) {
    for (size_t at = 0; (at = text.find("{}", at)) != std::string::npos; at += with.size()) text.replace(at, 2, with);
    return text;
}

std::string nested(const std::string& frame, std::string inside, int times) {
    for (int i = 0; i < times; ++i) inside = filled(frame, inside);
    return inside;
}

TEST(Nests, DeepTermsAreCheckedInFewSteps) {
    const std::pair<const char*, const char*> nests[] = {{"neg({})", "neg(neg(neg(x)))"},
                                                         {"transpose({}, perm=p)", "x"},
                                                         {"relu({})", "x"},
                                                         {"add({}, y)", "x:float"},
                                                         {"where(c, {}, y)", "x"},
                                                         {"softmax({}, axis=0)", "x"},
                                                         {"split({}, axis=0, num_outputs=2)", "x"},
                                                         {"split.1({}, axis=0, num_outputs=2)", "x"},
                                                         {"matmul({}, w)", "x"},
                                                         {"concat({}, w, axis=0)", "x"},
                                                         {"slice({}, [1], [2], [0])", "x"},
                                                         {"gather({}, i, axis=1)", "x"},
                                                         {"reduce_sum({}, [0])", "x"},
                                                         {"reshape({}, s)", "x"}};
    for (const auto& [frame, inside] : nests) {
        const std::string text =
            fmt::format("deep [reassociates]: neg(neg(q@identity({}))) => q", nested(frame, inside, 220));
        Result<Rules> rules = read_rules(text, "test");
        ASSERT_TRUE(rules.ok()) << frame << rules.error().to_string();
        const RuleProof proof = prove_for_any_rank((*rules)[0]);
        // One of several results is a law's no one has, which is found as soon.
        EXPECT_THAT(proof.reason, Not(HasSubstr("too large"))) << frame;
        EXPECT_EQ(proof.proved, !std::string(frame).starts_with("split")) << frame << "\n" << proof.reason;
    }
    Result<Rules> signs = read_rules(fmt::format("deep: {} => x", nested("neg({})", "x", 240)), "test");
    ASSERT_TRUE(signs.ok());
    EXPECT_TRUE(prove_for_any_rank((*signs)[0]).proved);
}

// A let that stands twice in the next doubles the term: refused with the reason, not waited for.
TEST(Nests, TermsThatDoubleAreRefused) {
    std::string lets;
    for (int i = 0; i < 60; ++i)
        lets += fmt::format("{0}a{1} = add({2}, {2})", i ? ", " : "", i, i ? fmt::format("a{}", i - 1) : "x");
    Result<Rules> rules = read_rules(fmt::format("doubles [grows]: neg(neg(x:float)) => let {} in a59", lets), "test");
    ASSERT_TRUE(rules.ok()) << rules.error().to_string();
    const RuleProof proof = prove_rule((*rules)[0]);
    EXPECT_FALSE(proof.proved);
    EXPECT_THAT(proof.reason, HasSubstr("too large"));
}

// Sizes that double from let to let are named, not written out.
TEST(Nests, SizesThatDoubleAreNamedOnce) {
    std::string lets = "n0 = dim(x, 0)";
    for (int i = 1; i < 60; ++i) lets += fmt::format(", n{0} = n{1} + n{1}", i, i - 1);
    for (const char* right : {"slice(x, [n59], [n59], [0])", "reshape(relu(x), [n59])"}) {
        Result<Rules> rules =
            read_rules(fmt::format("sizes [grows]: relu(slice(slice(x, [1], [9], [0]), [2], [8], [0])) => let {} in {}",
                                   lets, right),
                       "test");
        ASSERT_TRUE(rules.ok()) << rules.error().to_string();
        EXPECT_FALSE(prove_for_any_rank((*rules)[0]).proved);
    }
}

}  // namespace
}  // namespace tessera::nests_test
