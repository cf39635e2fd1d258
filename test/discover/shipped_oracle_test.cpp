// A third opinion on every rule that comes with Tessera: graphs that it matches are drawn at small sizes, and Z3 is
// asked whether what it makes of them is the same for all inputs, over the reals and over integers that wrap. A rule
// that the prover and the refuter believe and Z3 does not is a failure.
#include <gtest/gtest.h>

#include <limits>

#include "discover/oracles.h"
#include "discover/shipped.h"
#include "rewrite/refute/sample.h"
#include "rewrite/rules/apply_rules.h"

namespace tessera::shipped_oracle_test {
namespace {

constexpr int kDraws = 60;     // graphs drawn for each kind of element type, however few match
constexpr int kQuestions = 2;  // graphs that match, of each kind

struct Decided {
    int agreed = 0, disagreed = 0, asked = 0;
    std::string why = {}, counterexample = {};
};

Decided ask_about(const Rule& rule, bool integers) {
    Decided out;
    const Sampler sampler(rule);
    SampleOptions options;
    options.tiny = true;
    options.integers = integers;
    const int questions = campaign() < 10000 ? 1 : kQuestions;
    for (int i = 0; i < kDraws && out.asked < questions; ++i) {
        Draw draw(23, fmt::format("{}/{}", rule.name, i));
        std::optional<Sample> sample = sampler.draw(draw, options);
        if (!sample) continue;
        std::unique_ptr<Graph> right = sample->graph->clone();
        PassContext context;
        context.precision = Precision::Fast;
        context.fold_limit = std::numeric_limits<int64_t>::min() / 2;
        if (!apply_rule(rule, *right->outputs()[0], context, true)) continue;
        right->sort();
        right->erase_unused();
        if (!sample->positive.empty()) continue;  // what must be above 0 is not said to Z3
        const SecondOpinion said = ask_z3(*sample->graph, *right, sample->sizes, sample->fixed);
        ++out.asked;
        out.agreed += said.opinion == Opinion::Agrees;
        if (said.opinion == Opinion::None) out.why = said.why.substr(0, 50);
        out.disagreed += said.opinion == Opinion::Disagrees;
        if (said.opinion == Opinion::Disagrees) out.counterexample = said.why;
    }
    return out;
}

TEST(Oracles, EveryShippedRuleIsPutToZ3) {
    if (!has_z3()) GTEST_SKIP() << "Z3 is not installed: tools/setup.sh oracles";
    Rules all;
    for (const RuleFile& file : built_in_rule_files())
        for (const Rule& rule : built_in_rules(file.name)) all.push_back(rule);
    for (const Rule& rule : shipped_rules().rules) all.push_back(rule);
    int reals = 0, wholes = 0, decided = 0, considered = 0;
    std::map<std::string, int> reasons;
    for (const Rule& rule : all) {
        if (rule.exactness == Exactness::Approximates) continue;
        ++considered;
        const Decided r = ask_about(rule, false), w = ask_about(rule, true);
        EXPECT_EQ(r.disagreed + w.disagreed, 0) << rule.source << "\n"
                                                << to_string(rule) << "\n"
                                                << r.counterexample << w.counterexample;
        reals += r.agreed > 0;
        wholes += w.agreed > 0;
        decided += r.agreed > 0 || w.agreed > 0;
        if (r.agreed + w.agreed == 0)
            ++reasons[r.why.empty() ? w.why.empty() ? "no graph of this size" : w.why : r.why];
    }
    printf("Z3 decides %d of %d rules: %d over the reals, %d over integers that wrap\n", decided, considered, reals,
           wholes);
    for (const auto& [why, count] : reasons) printf("  %5d not decided: %s\n", count, why.c_str());
    EXPECT_GE(decided, considered / 2);
}

TEST(Oracles, Z3TellsFalseRules) {
    if (!has_z3()) GTEST_SKIP() << "Z3 is not installed: tools/setup.sh oracles";
    const std::pair<const char*, bool> wrong[] = {
        {"a: relu(neg(x)) => neg(relu(x))", false},
        {"a: sub(x, y) => sub(y, x)", false},
        {"a: sub(x:int, y) => sub(y, x)", true},
        {"a: div(mul(x:int, y), y) => x", true},
        {"a: abs(neg(x:int)) => neg(x)", true},
        {"a: matmul(x, y) => transpose(matmul(x, y))", false},
        {"a: reduce_max(x, a) => reduce_min(x, a)", false},
        {"a: cast(cast(x:i64, to=6), to=7) => x", true},
        {"a: where(less(x, y), x, y) => max(x, y)", false},
        {"a: max(x:u8, y) => min(x, y)", true},
    };
    for (const auto& [text, integers] : wrong) {
        Result<Rules> rules = read_rules(text, "test");
        ASSERT_TRUE(rules.ok()) << text;
        Rule rule = (*rules)[0];
        int disagreed = 0;
        for (int n = 0; n < 6 && disagreed == 0; ++n) {  // a tensor of 0 or 1 element may agree
            rule.name = fmt::format("a{}", n);
            disagreed = ask_about(rule, integers).disagreed;
        }
        EXPECT_GT(disagreed, 0) << text;
    }
}

}  // namespace
}  // namespace tessera::shipped_oracle_test
