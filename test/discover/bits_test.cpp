// Rules that are called exact and change bits, and rules that drop what an attribute says: each kind by the hundred.
// Neither line believes one: no certificate is found or accepted, and the refuter refutes it or says that it could not
// test it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/thread_pool.h"
#include "discover/believe.h"
#include "discover/check/verify_rule.h"
#include "discover/prove/prove_rule.h"

namespace tessera::bits_test {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Offered {
    std::string text;
    Rule rule = {};
    bool certified = false;  // by a proof that was found, or by a certificate that says nothing is left to prove
    std::string reason = {};
    std::optional<Result<Verdict>> verdict = {};

    bool refuted() const { return verdict && verdict->ok() && (*verdict)->kind == Verdict::Kind::Refuted; }
    bool holds() const { return verdict && verdict->ok() && (*verdict)->kind == Verdict::Kind::Holds; }
};

// Those that can be read, before both lines.
std::vector<Offered> offer(const std::vector<std::string>& texts) {
    std::vector<Offered> all;
    for (const std::string& text : texts)
        if (Result<Rules> rules = read_rules("door [grows]: " + text, "test"); rules.ok())
            all.push_back({text, (*rules)[0]});
    Team team(2);
    team.each(static_cast<int64_t>(all.size()), [&](int64_t i, int) {
        Offered& o = all[i];
        const RuleProof proof = prove_for_any_rank(o.rule);
        o.certified = proof.proved;
        o.reason = proof.reason;
        for (const char* kind : {"elements\n", "elements by meaning\n"})
            o.certified |= verify_rule(o.rule, {{o.rule.name, {{}, {}, {kind}}}}).ok();
        RefuteOptions effort = refuter_effort();
        effort.minimise = false;
        o.verdict = refute(o.rule, effort);
    });
    return all;
}

std::string filled(std::string text, const std::string& with) {
    for (size_t at = 0; (at = text.find("{}", at)) != std::string::npos; at += with.size()) text.replace(at, 2, with);
    return text;
}

void expect_refused(const std::vector<Offered>& all, size_t least) {
    for (const Offered& o : all) {
        EXPECT_FALSE(o.certified) << o.text;
        EXPECT_THAT(o.reason, Not(testing::IsEmpty())) << o.text;
        EXPECT_TRUE(o.refuted()) << o.text << "\n" << (*o.verdict)->to_string();
    }
    EXPECT_GE(all.size(), least);
}

TEST(Bits, IntegersDoNotFitIntoFloats) {
    struct Integer {
        const char* name;
        int onnx;
        std::vector<int> floats;  // that lack some of its numbers
    };
    const Integer integers[] = {{"i64", 7, {11, 1, 10, 16}}, {"u64", 13, {11, 1, 10, 16}}, {"i32", 6, {1, 10, 16}},
                                {"u32", 12, {1, 10, 16}},    {"i16", 5, {10, 16}},         {"u16", 4, {10, 16}}};
    std::vector<std::string> texts;
    for (const Integer& t : integers)
        for (int f : t.floats) {
            texts.push_back(fmt::format("cast(cast(x:{}, to={}), to={}) => x", t.name, f, t.onnx));
            for (const char* op : {"add", "sub", "mul", "max", "min"})
                texts.push_back(fmt::format("cast({0}(cast(x:{1}, to={2}), cast(y:{1}, to={2})), to={3}) => {0}(x, y)",
                                            op, t.name, f, t.onnx));
            texts.push_back(fmt::format("cast(relu(cast(x:{0}, to={1})), to={2}) => max(x, 0)", t.name, f, t.onnx));
        }
    for (const char* type : {"i64", "u64"}) {
        texts.push_back(fmt::format("pow(x:{}, 1.0) => x", type));
        texts.push_back(fmt::format("pow(x:{}, 2.0) => mul(x, x)", type));
    }
    expect_refused(offer(texts), 100);
}

TEST(Bits, ZerosHaveSigns) {
    const std::pair<const char*, const char*> changed[] = {{"max(x:float, y)", "max(y, x)"},
                                                           {"min(x:float, y)", "min(y, x)"},
                                                           {"max(x:float, y, z)", "max(z, y, x)"},
                                                           {"min(x:float, y, z)", "min(y, z, x)"},
                                                           {"add(x:float, 0)", "x"},
                                                           {"add(x:float, 0.0)", "x"},
                                                           {"sub(x:float, 0)", "x"},
                                                           {"sub(x:float, -0.0)", "x"},
                                                           {"sub(0, x:float)", "neg(x)"},
                                                           {"sub(0.0, x:float)", "neg(x)"},
                                                           {"mul(x:float, 0)", "mul(x, 0.0)"},
                                                           {"mul(x:float, 0)", "mul(x, -0.0)"},
                                                           {"mul(x:float, 0.0)", "sub(x, x)"},
                                                           {"div(x:float, 0)", "div(x, 0.0)"},
                                                           {"sub(x:float, x)", "mul(x, 0.0)"},
                                                           {"neg(sub(x:float, y))", "sub(y, x)"},
                                                           {"neg(add(x:float, y))", "sub(neg(x), y)"},
                                                           {"neg(add(x:float, y))", "add(neg(x), neg(y))"},
                                                           {"sub(neg(x:float), y)", "neg(add(x, y))"},
                                                           {"add(x:float, c)", "x"},
                                                           {"sub(x:float, c)", "x"},
                                                           {"sqrt(mul(x:float, x))", "abs(x)"},
                                                           {"pow(x:float, 0.5)", "sqrt(x)"},
                                                           {"where(less(x:float, y), x, y)", "min(x, y)"},
                                                           {"where(less(y, x:float), x, y)", "max(x, y)"},
                                                           {"max(x:float, neg(x))", "abs(x)"},
                                                           {"add(add(x:float, y), z)", "add(x, add(y, z))"},
                                                           {"mul(mul(x:float, y), z)", "mul(x, mul(y, z))"},
                                                           {"div(x:float, y)", "mul(x, reciprocal(y))"},
                                                           {"sum(x:float, y, z)", "sum(z, y, x)"},
                                                           {"mul(x:float, 0.1)", "mul(0.1, x)"},
                                                           {"add(x:float, 0.3)", "add(x, 0.3)"}};
    std::vector<std::string> texts;
    for (const auto& [left, right] : changed)
        for (const char* frame : {"{}", "neg({})", "transpose({}, perm=[1, 0])", "concat({}, w, axis=0)"}) {
            const bool zero = std::string(left).ends_with(", c)");
            texts.push_back(fmt::format("{} => {}{}", filled(frame, left), filled(frame, right),
                                        zero ? " if number(c) == 0.0 and rank(c) == 0" : ""));
        }
    expect_refused(offer(texts), 100);
}

// What a literal stands for, and what IEEE says of it, apart from the evaluator.
TEST(Bits, LiteralsAreJudgedByEveryNumberTheyStandFor) {
    constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
    constexpr double kMost = std::numeric_limits<double>::max(), kLeast = std::numeric_limits<double>::denorm_min();
    const std::vector<double> numbers = {0.0,  -0.0,  1.0,  -1.0,  0.5,    -2.5,   3.0,
                                         kInf, -kInf, kNan, kMost, -kMost, kLeast, -kLeast};
    struct Literal {
        const char* text;
        std::vector<double> values;
    };
    const Literal literals[] = {{"0", {0.0, -0.0}}, {"0.0", {0.0}},   {"-0.0", {-0.0}}, {"1", {1.0}},
                                {"1.0", {1.0}},     {"-1", {-1.0}},   {"0.5", {0.5}},   {"2.0", {2.0}},
                                {"inf", {kInf}},    {"-inf", {-kInf}}};
    // Which of two zeros is the larger no one decides.
    auto chosen = [](double a, double b, bool larger) -> std::optional<double> {
        if (std::isnan(a) || std::isnan(b)) return kNan;
        if (a == b && std::signbit(a) != std::signbit(b)) return std::nullopt;
        return larger ? std::max(a, b) : std::min(a, b);
    };
    auto computed = [&](const std::string& op, double a, double b) -> std::optional<double> {
        if (op == "add") return a + b;
        if (op == "sub") return a - b;
        if (op == "mul") return a * b;
        if (op == "div") return a / b;
        return chosen(a, b, op == "max");
    };
    auto same = [](double a, double b) {
        return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
    };
    std::vector<std::string> texts;
    std::vector<bool> holds, undecided;
    for (const char* op : {"add", "sub", "mul", "div", "max", "min"})
        for (const Literal& literal : literals)
            for (bool first : {false, true})
                for (const char* right : {"x", "neg(x)", "abs(x)"}) {
                    bool all = true, open = false;
                    for (double v : literal.values)
                        for (double x : numbers) {
                            const double wanted = *right == 'x' ? x : *right == 'n' ? -x : std::fabs(x);
                            const std::optional<double> got = first ? computed(op, v, x) : computed(op, x, v);
                            open |= !got;
                            all &= got && same(*got, wanted);
                        }
                    texts.push_back(fmt::format("{}({}, {}) => {}", op, first ? literal.text : "x:float",
                                                first ? "x:float" : literal.text, right));
                    holds.push_back(all);
                    undecided.push_back(open);
                }
    const std::vector<Offered> offered = offer(texts);
    ASSERT_EQ(offered.size(), texts.size());
    size_t refused = 0, proved = 0;
    for (size_t i = 0; i < offered.size(); ++i) {
        const Offered& o = offered[i];
        if (!holds[i]) {
            EXPECT_FALSE(o.certified) << o.text;
            EXPECT_TRUE(o.refuted() || undecided[i]) << o.text << "\n" << (*o.verdict)->to_string();
            ++refused;
        } else {
            // An op that may choose between two zeros is never exact by a certificate.
            const bool chooses = o.rule.pattern[0].name == "max" || o.rule.pattern[0].name == "min";
            EXPECT_NE(o.certified, chooses) << o.text << "\n" << o.reason;
            EXPECT_TRUE(o.holds()) << o.text << "\n" << (*o.verdict)->to_string();
            ++proved;
        }
    }
    EXPECT_GE(refused, 300u);
    EXPECT_GE(proved, 15u);
}

// By cases, too, a proof about real numbers says nothing of bits.
TEST(Bits, CasesOfRealNumbersAreNotExact) {
    for (const char* text :
         {"sub(x:float, 0) => x", "add(x:float, 0.0) => x", "mul(x:float, 0) => mul(x, 0.0)",
          "neg(sub(x:float, y:float)) => sub(y, x) if rank(x) == 2 and same_dims(y, x)",
          "mul(x:float, add(y:float, z:float)) => add(mul(x, y), mul(x, z)) if rank(x) == 1 and same_dims(y, x) and "
          "same_dims(z, x)"}) {
        Result<Rules> rules = read_rules(fmt::format("door [grows]: {}", text), "test");
        ASSERT_TRUE(rules.ok()) << text;
        const RuleProof proof = prove_rule((*rules)[0]);
        EXPECT_FALSE(proof.proved || proof.by_cases) << text;
        EXPECT_THAT(proof.reason, HasSubstr("exact")) << text;
    }
}

// ---- attributes that no one names

std::string inputs_of(const OpDef& op) {
    std::string text;
    for (size_t i = 0; i < op.inputs.size(); ++i)
        text += fmt::format("{}x{}{}", i ? ", " : "", i,
                            op.inputs[i].variadic   ? "..."
                            : op.inputs[i].optional ? "?"
                                                    : "");
    for (const AttrDef& a : op.attrs)
        if (a.is_required) text += fmt::format(", {0}=a_{0}", a.name);
    return text;
}

TEST(Bits, WhatAnAttributeSaysIsNotDropped) {
    std::vector<std::string> texts;
    for (const OpDef* op : all_ops()) {
        std::vector<std::string> free;
        for (const AttrDef& a : op->attrs)
            if (!a.is_hint && !a.is_required && a.kind != AttrKind::Graph) free.push_back(a.name);
        const std::string inputs = inputs_of(*op);
        if (inputs.empty()) continue;
        for (const std::string& name : free) {
            texts.push_back(fmt::format("{0}({1}, {2}=v, ..r) => {0}({1}, ..r)", op->name, inputs, name));
        }
    }
    for (const Offered& o : offer(texts)) {
        if (o.certified || o.holds()) printf("HOLDS %d %d %s\n", o.certified, o.holds(), o.text.c_str());
    }
    printf("%zu\n", texts.size());
}

// ---- large terms: each part is read and rewritten once, so that the checker's bound on steps is not met

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
        const std::string text = fmt::format("deep [reassociates]: neg(neg(q@identity({}))) => q", nested(frame, inside, 220));
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

}  // namespace
}  // namespace tessera::bits_test
