// Rules that hold over the reals and lose what they compute: terms that only the right side has, and that cancel there.
#include <gtest/gtest.h>

#include "discover/check/verify_rule.h"
#include "discover/prove/prove.h"
#include "discover/prove/prove_rule.h"
#include "rewrite/refute/refute.h"

namespace tessera::cancellation_test {
namespace {

Rule rule_of(const std::string& text) {
    Result<Rules> rules = read_rules("cancels [reassociates, grows]: " + text, "test");
    EXPECT_TRUE(rules.ok()) << text << "\n" << (rules.ok() ? "" : rules.error().to_string());
    return rules.ok() ? (*rules)[0] : Rule{};
}

bool is_proved(const Rule& rule) {
    for (const char* kind : {"elements\n", "elements by meaning\n"})
        if (verify_rule(rule, {{rule.name, {{}, {}, {kind}}}}).ok()) return true;
    const RuleProof proof = prove_rule(rule);
    return proof.proved || proof.by_cases;
}

bool is_proved(const std::string& claim) {
    Result<Claim> read = read_claim("cancels: " + claim);
    EXPECT_TRUE(read.ok()) << claim << "\n" << (read.ok() ? "" : read.error().to_string());
    Result<Proof> proof = prove(*read);
    return proof.ok() && proof->proved();
}

bool is_refuted(const Rule& rule) {
    Result<Verdict> verdict = refute(rule, {.instances = 120, .minimise = false});
    return verdict.ok() && verdict->kind == Verdict::Kind::Refuted;
}

TEST(Cancellation, TermsOfTheRightSideAloneDoNotCancel) {
    const std::pair<const char*, const char*> lefts[] = {
        {"add(x:float, y)", "add(x, y)"},       {"mul(x:float, y)", "mul(x, y)"},
        {"sub(x:float, y)", "sub(x, y)"},       {"max(x:float, y)", "max(x, y)"},
        {"sum(x:float, y, x)", "sum(x, y, x)"}, {"neg(add(x:float, y))", "neg(add(x, y))"}};
    const char* terms[] = {"mul(mul(y, y), y)", "mul(mul(x, x), y)", "mul(mul(x, x), mul(x, y))",
                           "mul(mul(y, y), mul(y, y))"};
    const char* forms[] = {"sub(add({0}, {1}), {1})", "add({1}, sub({0}, {1}))", "sub({1}, sub({1}, {0}))",
                           "relu(sub(add({0}, {1}), {1}))", "tanh(sub(add({0}, {1}), {1}))"};
    int tried = 0, refuted = 0;
    for (const auto& [left, again] : lefts)
        for (const char* term : terms)
            for (const char* form : forms) {
                const std::string right = fmt::format(fmt::runtime(form), again, term), start = right.substr(0, 5);
                const bool inside = start == "relu(" || start == "tanh(";
                const Rule rule = rule_of(
                    fmt::format("{} => {}", inside ? fmt::format("{}{})", start, left) : std::string(left), right));
                EXPECT_FALSE(is_proved(rule)) << to_string(rule);
                refuted += is_refuted(rule);
                ++tried;
            }
    EXPECT_GE(tried, 100);
    EXPECT_GE(refuted, tried * 3 / 4);  // tanh of such numbers is 1
    printf("%d of %d are refuted\n", refuted, tried);
}

TEST(Cancellation, NumbersAndLogarithmsDoNotEither) {
    for (const char* text :
         {"mul(x:float, 0.5) => sub(add(mul(x, 0.5), 1000), 1000)", "relu(x:float) => sub(add(relu(x), 1), 1)",
          "mul(x:float, 0.5) => sub(mul(x, 2047), mul(x, 2046.5))", "relu(x:float) => log(exp(relu(x)))",
          "tanh(x:float) => log(exp(tanh(x)))", "div(x:float, y) => sub(div(add(x, mul(y, mul(y, y))), y), mul(y, y))",
          "exp(x:float) => sub(add(exp(x), mul(mul(x, x), x)), mul(mul(x, x), x))"})
        EXPECT_FALSE(is_proved(rule_of(text))) << text;
    for (const char* claim :
         {"reduce_sum(x, [0]) => sub(reduce_sum(add(x, mul(x, x)), [0]), reduce_sum(mul(x, x), [0])) where x: [M]",
          "matmul(x, y) => sub(matmul(x, add(y, mul(y, y))), matmul(x, mul(y, y))) where x: [M,K], y: [K,N]",
          "exp(x) => exp(sub(add(x, mul(x, x)), mul(x, x))) where x: [M]",
          "max(x, y) => max(sub(add(x, mul(x, x)), mul(x, x)), y) where x: [M], y: [M]"})
        EXPECT_FALSE(is_proved(claim)) << claim;
}

// What the left side has, or is larger than.
TEST(Cancellation, TermsOfBothSidesMayCancel) {
    for (const char* text : {"sub(mul(x:float, x), mul(y:float, y)) => mul(sub(x, y), add(x, y))",
                             "mul(sub(x:float, y), add(x, y)) => sub(mul(x, x), mul(y, y))",
                             "mul(sub(x:float, y:float), z:float) => sub(mul(x, z), mul(y, z))",
                             "mul(x:float, 0) => sub(x, x)", "mul(x:float, 3) => sub(mul(x, 8), mul(x, 5))",
                             "sub(add(x:float, y), mul(y, y)) => add(sub(x, mul(y, y)), y)",
                             "max(x:float, y) => add(x, relu(sub(y, x)))"}) {
        const Rule rule = rule_of(text);
        EXPECT_TRUE(is_proved(rule)) << text;
        EXPECT_FALSE(is_refuted(rule)) << text;
    }
}

}  // namespace
}  // namespace tessera::cancellation_test
