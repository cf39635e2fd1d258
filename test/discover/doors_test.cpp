// Ways in which a false rule was once believed, each as a kind: its cases, and variants of it by the hundred. What is
// believed is what prove() proves, what verify_rule() takes, and what prove_rule() calls proved.
#include <gtest/gtest.h>

#include "discover/check/check_certificate.h"
#include "discover/check/check_exactness.h"
#include "discover/check/verify_rule.h"
#include "discover/claims.h"
#include "discover/prove/prove.h"
#include "discover/prove/prove_rule.h"
#include "discover/truth.h"
#include "rewrite/refute/refute.h"
#include "rewrite/rules/apply_rules.h"

namespace tessera::doors_test {
namespace {

Claim claim_of(const std::string& text) {
    Result<Claim> claim = read_claim("door: " + text);
    EXPECT_TRUE(claim.ok()) << text << "\n" << (claim.ok() ? "" : claim.error().to_string());
    return claim.ok() ? *claim : Claim{};
}

Rule rule_of(const std::string& text) {
    Result<Rules> rules = read_rules(text, "test");
    EXPECT_TRUE(rules.ok()) << text << "\n" << (rules.ok() ? "" : rules.error().to_string());
    return rules.ok() ? (*rules)[0] : Rule{};
}

bool proves(const Claim& claim) {
    Result<Proof> proof = prove(claim);
    return proof.ok() && proof->proved();
}

bool verifies(const Rule& rule, const Claim& claim, const Certificate& certificate) {
    Claim named = claim;
    named.rule.name = rule.name;
    Result<Certificates> read = read_certificates(certificate_entry(named, certificate), "test");
    EXPECT_TRUE(read.ok());
    return read.ok() && verify_rule(rule, *read).ok();
}

// f(op(x, c), [1]) with a constant of these sizes, and whether the rule is applied to it.
bool applies(const Rule& rule, const char* f, const char* op, int keep, const Sizes& x, const Sizes& c, double number) {
    Graph graph("g");
    Value* in = graph.add_input("x", Type(DType::f32, Shape(x)));
    Result<Node*> inner = graph.add({find_op(op), {in, graph.constant(*Tensor::filled(DType::f32, c, number))}, {}, 1});
    EXPECT_TRUE(inner.ok());
    AttrMap attrs{{"keepdims", Attr(int64_t{keep})}};
    Result<Node*> outer =
        graph.add({find_op(f), {(*inner)->output(0), graph.constant(Tensor::ints({1}))}, std::move(attrs), 1});
    EXPECT_TRUE(outer.ok());
    graph.add_output((*outer)->output(0));
    PassContext context;
    return apply_rule(rule, *graph.outputs()[0], context, true);
}

TEST(Soundness, ALiteralIsOneNumberInTheEngineToo) {
    int refused = 0;
    for (const auto& [op, number] : {std::pair("mul", 1.0), {"div", 1.0}, {"pow", 1.0}, {"add", 0.0}, {"sub", 0.0}})
        for (const char* f : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_l1", "reduce_log_sum_exp"})
            for (int keep : {0, 1}) {
                const Rule rule = rule_of(
                    fmt::format("literal [reassociates]: {0}({1}(x, {2:.1f}), [1], keepdims={3}) => {0}(x, [1], "
                                "keepdims={3})",
                                f, op, number, keep));
                for (const auto& [x, c] :
                     {std::pair<Sizes, Sizes>{{2, 1}, {2, 5}}, {{1, 1}, {1, 3}}, {{3, 1}, {5}}, {{1, 4}, {6, 1}}}) {
                    EXPECT_FALSE(applies(rule, f, op, keep, x, c, number)) << to_string(rule);
                    ++refused;
                }
                for (const auto& [x, c] :
                     {std::pair<Sizes, Sizes>{{2, 1}, {}}, {{2, 5}, {5}}, {{2, 5}, {2, 1}}, {{2, 1}, {1, 1}}})
                    EXPECT_TRUE(applies(rule, f, op, keep, x, c, number)) << to_string(rule);
            }
    EXPECT_GE(refused, 100);
}

// Both sides are the same real function where both are defined, and the right side is defined less often.
TEST(Soundness, TheRightSideIsDefinedWhereTheLeftIs) {
    int refused = 0;
    const char* lefts[] = {"add(x, y)",      "relu(add(x, y))", "mul(x, y)",
                           "neg(add(x, y))", "tanh(sub(x, y))", "transpose(add(x, y), perm=[1,0])"};
    const char* partial[] = {"div(x, y)",    "reciprocal(x)",     "log(x)",           "sqrt(x)",
                             "pow(x, -1.0)", "pow(x, 0.5)",       "acos(x)",          "atanh(x)",
                             "log(abs(x))",  "div(x, sub(x, x))", "sqrt(neg(abs(y)))"};
    for (const char* left : lefts)
        for (const char* p : partial) {
            const bool turned = std::string(left).starts_with("transpose");
            const std::string q = turned ? fmt::format("transpose({}, perm=[1,0])", p) : std::string(p);
            for (const std::string& right :
                 {fmt::format("sub(add({0}, {1}), {1})", left, q), fmt::format("add({0}, mul({1}, 0.0))", left, q),
                  fmt::format("sub({0}, sub({1}, {1}))", left, q)}) {
                const Claim claim = claim_of(fmt::format("{} => {} where x: [M,N], y: [M,N]", left, right));
                EXPECT_FALSE(proves(claim)) << to_string(claim);
                EXPECT_EQ(evaluated(claim, 3, 60), Truth::Differs) << to_string(claim);
                ++refused;
            }
        }
    for (const char* text :
         {"mul(reduce_sum(x, [1]), 0.0) => mul(reduce_mean(x, [1]), 0.0) where x: [M,N]",
          "mul(reduce_sum(x, [1]), 0.0) => mul(reduce_max(x, [1]), 0.0) where x: [M,N]",
          "reduce_sum(x, [1]) => mul(reduce_mean(x, [1]), reduce_sum(div(x, x), [1])) where x: [M,1]",
          "relu(log(x)) => sub(add(relu(log(x)), relu(neg(log(x)))), relu(neg(log(x)))) where x: [M]",
          "add(x, y) => add(x, div(mul(y, y), y)) where x: [M], y: [M]",
          "where(less(div(y, y), x), x, y) => where(less(add(mul(y, 0.0), 1.0), x), x, y) where x: [M], y: [M]",
          "where(is_nan(div(y, y)), x, y) => where(is_nan(add(mul(y, 0.0), 1.0)), x, y) where x: [M], y: [M]",
          "where(is_nan(sub(log(x), log(x))), y, x) => where(is_nan(mul(x, 0.0)), y, x) where x: [M], y: [M]",
          "exp(neg(div(x, y))) => mul(exp(neg(div(x, y))), div(div(x, y), div(x, y))) where x: [M], y: [M]"}) {
        EXPECT_FALSE(proves(claim_of(text))) << text;
        ++refused;
    }
    EXPECT_GE(refused, 200);
    // What the left side asks for, the right side may ask for.
    for (const char* text :
         {"div(div(x, y), z) => div(x, mul(y, z)) where x: [M], y: [M], z: [M]",
          "div(mul(x, y), y) => x where x: [M], y: [M]", "mul(div(x, y), y) => x where x: [M], y: [M]",
          "reduce_mean(reduce_mean(x, [1]), [0]) => reduce_mean(x, [0, 1]) where x: [M,N]",
          "div(x, sqrt(y)) => mul(x, reciprocal(sqrt(y))) where x: [M], y: [M]",
          "add(x, y) => add(x, div(mul(y, y), y)) if invertible(y) where x: [M], y: [M]",
          "softmax(transpose(x, perm=[1,0]), axis=0) => transpose(softmax(x, axis=1), perm=[1,0]) where x: [M,N]"}) {
        const Claim claim = claim_of(text);
        Result<Proof> proof = prove(claim);
        ASSERT_TRUE(proof.ok() && proof->proved()) << text << (proof.ok() ? proof->reason : "");
        EXPECT_TRUE(check_certificate(claim, proof->certificate).ok()) << text;
    }
}

TEST(Soundness, WhatAProofFixesTheRuleAsks) {
    int refused = 0;
    auto offer = [&](const std::string& text, const std::map<std::string, std::vector<int64_t>>& values) {
        Claim claim = claim_of(text);
        for (RuleVariable& v : claim.rule.variables)
            if (claim.shapes.contains(v.name)) v.constraint = "float";
        for (const auto& [name, list] : values) claim.values.emplace(name, std::vector<Expr>(list.begin(), list.end()));
        claim.rule.exactness = Exactness::Reassociates;
        Result<Proof> proof = prove(claim);
        ASSERT_TRUE(proof.ok() && proof->proved()) << text;
        const Rule asks = to_rule(claim);
        EXPECT_TRUE(verifies(asks, claim, proof->certificate)) << to_string(asks);
        // Without any of what it asks for beyond the ranks.
        for (size_t i = 0; i < asks.conditions.size(); ++i) {
            Rule loose = asks;
            loose.conditions.erase(loose.conditions.begin() + static_cast<std::ptrdiff_t>(i));
            EXPECT_FALSE(verifies(loose, claim, proof->certificate)) << to_string(loose);
            ++refused;
        }
    };
    const char* shapes[] = {"[A]", "[A,B]", "[A,B,C]", "[A,B,C,D]"};
    for (int rank = 1; rank <= 4; ++rank) {
        std::vector<int64_t> p;
        for (int i = 0; i < rank; ++i) p.push_back(i);
        offer(fmt::format("transpose(x, perm=p) => x where x: {}", shapes[rank - 1]), {{"p", p}});
        while (std::next_permutation(p.begin(), p.end())) {
            std::vector<int64_t> inverse(p.size());
            for (size_t i = 0; i < p.size(); ++i) inverse[static_cast<size_t>(p[i])] = static_cast<int64_t>(i);
            offer(fmt::format("transpose(transpose(x, perm=p), perm=q) => x where x: {}", shapes[rank - 1]),
                  {{"p", p}, {"q", inverse}});
        }
    }
    offer("conv(x, w, strides=s) => conv(x, w) where x: [N,C,H,W], w: [O,C,1,1]", {{"s", {1, 1}}});
    EXPECT_GE(refused, 100);
    // Names of sizes that mean something else in a proof, and shapes of what is no variable.
    Claim claim = claim_of("conv(x, w, strides=s) => conv(x, w, strides=s) where x: [N,C,H,W], w: [O,C,1,1]");
    claim.values.emplace("s", std::vector<Expr>{symbol("_v1") + 1, symbol("_v2") + 1});
    EXPECT_FALSE(proves(claim));
    EXPECT_FALSE(check_certificate(claim, {"root 0\nmerge 1 2 order 0 1\n"}).ok());
    EXPECT_FALSE(proves(claim_of("relu(x) => relu(x) where x: [N], z: [N]")));
}

TEST(Soundness, AProofOverTheRealsIsForFloats) {
    int refused = 0;
    for (const Claim& hold : listed_claims().hold) {
        Result<Proof> proof = prove(hold);
        ASSERT_TRUE(proof.ok() && proof->proved()) << to_string(hold);
        for (const char* type : {"", "int", "number", "bool", "i32", "u8", "i64"}) {
            Claim other = hold;
            for (RuleVariable& v : other.rule.variables)
                if (hold.shapes.contains(v.name)) v.constraint = type;
            if (*type) {
                EXPECT_FALSE(proves(other)) << to_string(other);
            }
            Claim floats = hold;
            Rule rule = to_rule(floats);
            for (RuleVariable& v : rule.variables)
                if (hold.shapes.contains(v.name)) v.constraint = type;
            EXPECT_FALSE(verifies(rule, hold, proof->certificate)) << to_string(rule);
            ++refused;
        }
    }
    EXPECT_GE(refused, 100);
    EXPECT_FALSE(proves(claim_of("div(mul(x:int, y:int), z:int) => mul(x, div(y, z)) where x: [M], y: [M], z: [M]")));
}

TEST(Soundness, ExactMeansTheSameRoundings) {
    int refused = 0;
    const std::pair<const char*, const char*> composed[] = {{"swish(x)", "mul(x, sigmoid(x))"},
                                                            {"sum(x, y, x)", "add(add(x, y), x)"},
                                                            {"softplus(x)", "log(add(exp(x), 1.0))"},
                                                            {"mish(x)", "mul(x, tanh(softplus(x)))"},
                                                            {"mean(x, y)", "div(add(x, y), 2.0)"},
                                                            {"softsign(x)", "div(x, add(abs(x), 1.0))"},
                                                            {"add(mul(x, y), x)", "sum(mul(x, y), x)"},
                                                            {"sum(x, y)", "sum(add(x, y))"},
                                                            {"relu(add(mul(x, 0.1), y))", "relu(add(mul(0.1, x), y))"},
                                                            {"max(x, 0)", "relu(x)"}};
    const char* around[] = {"{}",
                            "relu({})",
                            "neg({})",
                            "transpose({}, perm=[1,0])",
                            "concat({}, x, axis=0)",
                            "concat(x, {}, axis=1)",
                            "slice({}, [0], [1], [0])",
                            "exp({})",
                            "add({}, y)",
                            "mul({}, {})",
                            "reshape({}, [-1])",
                            "abs({})",
                            "sub(y, {})",
                            "min({}, y)"};
    for (const auto& [l, r] : composed)
        for (const char* frame : around) {
            auto filled = [&](std::string text, const std::string& with) {
                for (size_t at = 0; (at = text.find("{}", at)) != std::string::npos; at += with.size())
                    text.replace(at, 2, with);
                return text;
            };
            const Claim claim =
                claim_of(fmt::format("{} => {} where x: [M,N], y: [M,N]", filled(frame, l), filled(frame, r)));
            const bool trivial = std::string(l) == "sum(x, y)" || std::string(l) == "add(mul(x, y), x)";
            if (!trivial) {
                EXPECT_EQ(exactness_of(claim), Exactness::Reassociates) << to_string(claim);
            }
            refused += !trivial;
        }
    EXPECT_GE(refused, 100);
    // What is called exact has the same bits, in 16 bits too.
    int exact = 0;
    for (const Claim& claim : listed_claims().hold) {
        if (exactness_of(claim) != Exactness::Exact) continue;
        Rule rule = to_rule(claim);
        rule.exactness = Exactness::Exact;
        Result<Verdict> verdict = refute(rule, {.instances = 20, .draws = 400, .minimise = false});
        ASSERT_TRUE(verdict.ok());
        EXPECT_NE(verdict->kind, Verdict::Kind::Refuted) << verdict->to_string();
        ++exact;
    }
    EXPECT_GE(exact, 15);
}

TEST(Soundness, ANarrowingCastIsAnOperation) {
    int refused = 0;
    const char* lefts[] = {"relu(x)", "add(x, x)",          "transpose(x, perm=[1,0])",
                           "neg(x)",  "reduce_sum(x, [1])", "exp(x)"};
    for (const char* type : {"f64", "f32"})
        for (int narrow : {1, 10, 16}) {
            const int wide = std::string(type) == "f64" ? 11 : 1;
            if (narrow == wide) continue;
            for (const char* left : lefts)
                for (int where = 0; where < 4; ++where) {
                    const std::string l = left;
                    auto rounded = [&](const std::string& e) {
                        return fmt::format("cast(cast({}, to={}), to={})", e, narrow, wide);
                    };
                    std::string r = l;
                    if (where % 2 == 0) r = rounded(l);
                    if (where % 2 == 1)
                        r.replace(r.find("x,") != r.npos ? r.find("x,") : r.find("x)"), 1, rounded("x"));
                    std::string typed = l, wanted = where < 2 ? r : fmt::format("add({}, sub({}, {}))", l, r, l);
                    typed.replace(typed.find('x') == 1 ? typed.find("x)") : typed.find("(x") + 1, 1,
                                  fmt::format("x:{}", type));
                    const Claim claim = claim_of(fmt::format("{} => {} where x: [M,N]", typed, wanted));
                    EXPECT_FALSE(proves(claim)) << to_string(claim);
                    ++refused;
                }
        }
    EXPECT_GE(refused, 100);
    for (const char* text : {"relu(x) => relu(cast(cast(x, to=16), to=1)) where x: [M]",
                             "relu(x) => cast(relu(cast(x, to=10)), to=1) where x: [M]",
                             "cast(cast(x, to=1), to=11) => cast(x, to=11) where x: [M]",
                             "mul(x, y) => mul(cast_like(x, y), y) where x: [M], y: [M]"})
        EXPECT_FALSE(proves(claim_of(text))) << text;
    EXPECT_TRUE(proves(
        claim_of("cast(transpose(x, perm=[1,0]), to=10) => transpose(cast(x, to=10), perm=[1,0]) where x: [M,N]")));
}

TEST(Soundness, DrawsAreNoProof) {
    int refused = 0;
    for (const char* group : {"", ", group=2", ", group=3", ", group=g"})
        for (const char* rest : {", ..a", ", strides=s", ", pads=p", ", dilations=d", ", strides=s, pads=p", ""})
            for (const char* form :
                 {"concat(conv(x:float, w{0}), conv(x, v{0}), axis=1) => conv(x, concat(w, v, axis=0){0})",
                  "add(conv(x:float, w{0}), conv(y, v{0})) => conv(concat(x, y, axis=1), concat(w, v, axis=1){0})",
                  "relu(concat(conv(x:float, w{0}), conv(x, v{0}), axis=1)) => relu(conv(x, concat(w, v, axis=0){0}))",
                  "(conv(x:float, w{0}), conv(x, v{0})) => split(conv(x, concat(w, v, axis=0){0}), [dim(w, 0), dim(v, "
                  "0)], axis=1)",
                  "conv(x:float, w{0}) => conv(x, pad(w, [0,0,1,1,0,0,1,1]){0})"}) {
                const std::string attrs = std::string(group) + rest;
                if (attrs.empty()) continue;
                std::string text = form;
                for (size_t at = 0; (at = text.find("{0}", at)) != std::string::npos; at += attrs.size())
                    text.replace(at, 3, attrs);
                Result<Rules> rules = read_rules("merge [reassociates, grows]: " + text, "test");
                if (!rules.ok()) continue;
                EXPECT_FALSE(prove_rule((*rules)[0]).proved) << text;
                ++refused;
            }
    EXPECT_GE(refused, 100);
    // And those that are false are not even taken for true by cases, nor by the refuter.
    for (const char* text :
         {"concat(conv(x:float, w, ..a), conv(x, v, ..a), axis=1) => conv(x, concat(w, v, axis=0), ..a)",
          "add(conv(x:float, w, ..a), conv(y, v, ..a)) => conv(concat(x, y, axis=1), concat(w, v, axis=1), ..a)"}) {
        const Rule rule = rule_of(std::string("merge [reassociates, grows]: ") + text);
        const RuleProof proof = prove_rule(rule);
        EXPECT_FALSE(proof.proved || proof.by_cases) << text << proof.reason;
        Result<Verdict> verdict = refute(rule, {.instances = 300, .minimise = false});
        ASSERT_TRUE(verdict.ok());
        EXPECT_EQ(verdict->kind, Verdict::Kind::Refuted) << text;
    }
    // One whose own conditions say what was proved is proved.
    EXPECT_TRUE(
        prove_rule(
            rule_of("ok [reassociates]: matmul(x:float, add(y:float, z:float)) => add(matmul(x, y), matmul(x, z)) "
                    "if rank(x) == 2 and rank(y) == 2 and dim(y, 0) == dim(x, 1) and same_dims(z, y)"))
            .proved);
}

// ---- rules for any rank

std::string filled(std::string text, const std::string& with) {
    for (size_t at = 0; (at = text.find("{}", at)) != std::string::npos; at += with.size()) text.replace(at, 2, with);
    return text;
}

// By a proof that was found, or by a certificate that says nothing is left to prove.
bool believes(const Rule& rule) {
    if (prove_for_any_rank(rule).proved) return true;
    for (const char* kind : {"elements\n", "elements by meaning\n"})
        if (verify_rule(rule, {{rule.name, {{}, {}, {kind}}}}).ok()) return true;
    return false;
}

// Counts the rules that can be read and are refused.
class Refused {
  public:
    void operator()(const std::string& text) {
        Result<Rules> rules = read_rules("door [grows, reassociates]: " + text, "test");
        if (!rules.ok()) return;
        EXPECT_FALSE(believes((*rules)[0])) << text;
        ++count;
    }
    int count = 0;
};

void expect_proved(const std::string& text) {
    const RuleProof proof = prove_for_any_rank(rule_of(text));
    EXPECT_TRUE(proof.proved) << text << "\n" << proof.reason;
}

TEST(Soundness, AConditionSaysWhatItsFunctionSays) {
    Refused refused;
    for (const char* op : {"mul", "div", "pow"})
        for (const char* type : {":float", ":f32", ":f16", ":f64", ":int", ":i64", ""})
            for (const char* said : {"all_true(c)", "positive(c)", "non_negative(c)", "invertible(c)", "finite(c)",
                                     "all_true(c) and count(c) == 1", "number(c) > 0.0"})
                refused(fmt::format("{}(x{}, c) => x if const(c) and {}", op, type, said));
    for (const char* op : {"add", "sub"})
        for (const char* said : {"all_true(c)", "finite(c)", "non_negative(c)", "const(c)", "number(c) < 1.0"})
            refused(fmt::format("{}(x:float, c) => x if {}", op, said));
    EXPECT_GE(refused.count, 100);
    // Of booleans, all that are not 0 are 1; zeros are of either sign.
    expect_proved("yes: where(c, x, _) => x if all_true(c)");
    expect_proved("and: and(x, c) => x if all_true(c)");
    expect_proved("no [reassociates]: add(x:float, c) => x if all_false(c)");
    EXPECT_FALSE(believes(rule_of("zero: add(x:float, c) => add(x, 0) if all_false(c)")));
    EXPECT_FALSE(believes(rule_of("zero: mul(x:float, c) => mul(x, 0) if number(c) == 0.0")));
}

TEST(Soundness, AListIsAnyNumberOfTensorsAndAnOptionalMayBeAbsent) {
    Refused refused;
    const std::string ops[] = {"max", "min", "sum", "mean"};
    for (const std::string& f : ops)
        for (const std::string& g : ops) {
            if (f == g) continue;
            for (const char* form :
                 {"{0}(x:float, {1}(ys...)) => {0}(x, ys...)", "{0}({1}(ys...), x:float) => {0}(ys..., x)",
                  "{0}(x:float, {1}(y, zs...)) => {0}(x, y, zs...)", "{0}({1}(xs...)) => {0}(xs...)",
                  "{0}({1}(xs...), ys...) => {1}(xs..., ys...)", "{0}(xs..., {1}(ys...)) => {0}(ys..., {1}(xs...))"})
                refused(fmt::format(fmt::runtime(form), f, g));
        }
    for (const std::string f : {"max", "min", "add", "sub"})
        for (const std::string g : {"max", "min", "add", "sub"}) {
            if (f == g) continue;
            refused(fmt::format("clip({0}(x:float, y), l?, l?) => clip({1}(x, y), l?, l?)", f, g));
            refused(fmt::format("clip({0}(x:float, y), l?, h?) => clip({1}(x, y), l?, h?)", f, g));
            refused(fmt::format("clip({0}(x:float, y), l, h?) => clip({1}(x, y), l, h?)", f, g));
        }
    for (const char* text : {"clip(x:float, l?, h?) => clip(x, h?, l?)", "clip(x:float, l?, l?) => clip(x, l?)",
                             "conv(x, w, b?) => conv(x, w)", "gemm(a:float, b, c?) => matmul(a, b)",
                             "clip(clip(x:float, l?, h?), l?, h?) => clip(x, h?, l?)",
                             "conv(mul(x, 2.0), w, b?) => mul(conv(x, w, b?), 2.0)",
                             "pad(pad(x, p, v?), q, u?) => pad(x, ints(p) + ints(q), v?) if all_at_least(ints(p), 0) "
                             "and all_at_least(ints(q), 0)"})
        refused(text);
    EXPECT_GE(refused.count, 100);
    expect_proved("max [reassociates]: max(xs..., max(ys...), zs...) => max(xs..., ys..., zs...)");
    expect_proved("clip [reassociates]: clip(max(x:float, y), l?, h?) => clip(max(y, x), l?, h?)");
    expect_proved("one: clip(neg(neg(x)), l?, h?) => clip(x, l?, h?)");
}

TEST(Soundness, ARestHoldsWhatIsNotNamed) {
    Refused refused;
    for (const OpDef* op : all_ops()) {
        size_t least = 0;
        for (const ParamDef& in : op->inputs) least += !in.optional && !in.variadic;
        if (op->has(Trait::SameOrder)) continue;  // types stay, and with them all of their attributes
        if (op->attrs.empty() || least == 0 || least != op->inputs.size() || op->outputs.size() != 1) continue;
        std::string xs = "x";
        for (size_t i = 1; i < least; ++i) xs += fmt::format(", x{}", i);
        refused(fmt::format("identity({0}({1}, ..r)) => {0}({1})", op->name, xs));
        for (const AttrDef& def : op->attrs) {
            std::string usual;
            if (def.fallback && def.kind == AttrKind::Int) usual = fmt::format("{}", std::get<int64_t>(*def.fallback));
            if (def.fallback && def.kind == AttrKind::Float)
                usual = fmt::format("{:.9g}", std::get<float>(*def.fallback));
            if (def.fallback && def.kind == AttrKind::String)
                usual = fmt::format("\"{}\"", std::get<std::string>(*def.fallback));
            if (usual.empty()) continue;
            refused(fmt::format("identity({0}({1}, ..r)) => {0}({1}, {2}={3}, ..r)", op->name, xs, def.name, usual));
        }
    }
    for (const char* text :
         {"neg(neg(transpose(x, ..r))) => transpose(x)", "neg(neg(transpose(x, ..r))) => transpose(x, perm=[1, 0])",
          "transpose(transpose(x, ..r), ..r) => x",
          "reduce_sum(transpose(x, ..r), a) => transpose(reduce_sum(x, a), ..r)",
          "gemm(transpose(x:float, perm=[1, 0]), y, ..r) => gemm(x, y, transA=1, ..r)",
          "gemm(x:float, transpose(y, perm=[1, 0]), ..r) => gemm(x, y, transB=1, ..r)",
          "gemm(x:float, y, ..r) => matmul(x, y)", "conv(x, w, ..r) => conv(x, w, group=2, ..r)",
          "conv(mul(x, c), w, ..r) => conv(x, mul(w, reshape(c, join([1, -1], repeat(1, rank(w) - 2)))), ..r) "
          "if varies_only_along(c, 1, rank(w)) and same_dims_after(x, c)",
          "(conv(x, w, ..a), conv(x, v, ..a)) => let y = conv(x, concat(w, v, axis=0), ..a), n = dim(w, 0), m = n + "
          "dim(v, 0) in (slice(y, [0], [n], [1], [1]), slice(y, [n], [m], [1], [1]))",
          "softmax(x, ..r) => hardmax(x, ..r)", "leaky_relu(x, ..r) => elu(x, ..r)"})
        refused(text);
    EXPECT_GE(refused.count, 100);
    expect_proved("kept: neg(neg(transpose(x, ..r))) => transpose(x, ..r)");
    expect_proved("named: neg(neg(softmax(x, axis=a, ..r))) => softmax(x, axis=a)");
    expect_proved(
        "both [reassociates]: gemm(transpose(x:float, perm=[1, 0]), y, transA=0, ..r) => gemm(x, y, transA=1, ..r)");
}

TEST(Soundness, WhatIsNamedCountsWhateverARestHolds) {
    const Rule rule = rule_of("named [reassociates]: relu(leaky_relu(x, ..r)) => leaky_relu(x, alpha=0.01, ..r)");
    Graph graph("g");
    Value* in = graph.add_input("x", Type(DType::f32, Shape(Sizes{2})));
    Result<Node*> inner = graph.add({find_op("leaky_relu"), {in}, {{"alpha", Attr(0.5F)}}, 1});
    ASSERT_TRUE(inner.ok());
    Result<Node*> outer = graph.add({find_op("relu"), {(*inner)->output(0)}, {}, 1});
    ASSERT_TRUE(outer.ok());
    graph.add_output((*outer)->output(0));
    PassContext context;
    ASSERT_TRUE(apply_rule(rule, *graph.outputs()[0], context, true));
    EXPECT_FALSE(graph.outputs()[0]->node()->attrs().contains("alpha"));  // its default
}

TEST(Soundness, DemandsAreFoundAtAnyDepth) {
    Refused refused;
    const char* partial[] = {"log(x:float)",           "reciprocal(x:float)", "div(y, x:float)",  "atanh(x:float)",
                             "reduce_max(x:float, a)", "pow(x:float, -1)",    "log(abs(x:float))"};
    const char* inner[] = {"matmul({}, w)",         "reduce_sum({}, [0])", "matmul(w, {})",
                           "concat({}, w, axis=0)", "gather({}, i)",       "pad({}, [0, 1, 0, 1])"};
    for (const char* p : partial)
        for (const char* f : inner)
            for (const char* g : inner) {
                const std::string q = filled(g, filled(f, p));
                refused(fmt::format("relu(q@{}) => relu(sub(add(q, q), q))", q));
                refused(fmt::format("tanh(q@{}) => tanh(add(q, sub(q, q)))", q));
            }
    for (const char* text :
         {"relu(q@matmul(matmul(log(x:float), w), v)) => relu(matmul(log(x), matmul(w, v))) if rank(w) == 2 and "
          "rank(v) == 2",
          "reciprocal(pow(log(x:float), 0.5)) => reciprocal(sqrt(log(x)))",
          "where(less(log(x:float), y), log(x), y) => min(log(x), y)", "max(log(x:float), neg(log(x))) => abs(log(x))",
          "max(log(x:float), y) => add(log(x), relu(sub(y, log(x))))",
          "atan(sub(log(x:float), log(y))) => atan(log(div(x, y)))",
          "atan(sub(x:float, log(y))) => atan(log(div(exp(x), y)))",
          "where(less(mul(sqrt(x:float), sqrt(y)), z), z, x) => where(less(sqrt(mul(x, y)), z), z, x)",
          "is_nan(mul(sqrt(x:float), sqrt(y))) => is_nan(sqrt(mul(x, y)))", "is_nan(exp(log(x:float))) => is_nan(x)",
          "where(less(exp(log(x:float)), y), x, y) => where(less(x, y), x, y)"})
        refused(text);
    EXPECT_GE(refused.count, 100);
    expect_proved("asked [reassociates, grows]: q@matmul(log(x:float), w) => sub(add(q, q), q)");
    expect_proved("total [reassociates, grows]: relu(q@matmul(exp(x:float), w)) => relu(sub(add(q, q), q))");
}

TEST(Soundness, WhatIsReducedMayBeNothing) {
    Refused refused;
    for (const char* m : {"reduce_max", "reduce_min", "reduce_mean", "reduce_sum"})
        for (const char* axes : {"a", "[0]", "[-1]", "[0, 1]", "[k]"})
            for (const char* frame : {"{}", "relu({})", "log({})", "neg({})", "add({}, y)", "mul({}, y)"}) {
                if (std::string(axes) == "[k]") continue;
                const std::string l = fmt::format("reduce_sum(exp(sub(x:float, {0}(x, {1}))), {1})", m, axes);
                const std::string r = fmt::format("div(reduce_sum(exp(x), {1}), exp({0}(x, {1})))", m, axes);
                refused(fmt::format("{} => {}", filled(frame, l), filled(frame, r)));
            }
    for (const char* other : {"reduce_max", "reduce_min", "reduce_mean", "reduce_log_sum_exp", "reduce_log_sum"})
        for (const char* frame : {"{}", "relu({})", "exp({})"}) {
            refused(fmt::format("{0} => {1}", filled(frame, "mul(reduce_sum(x:float, a), 0.0)"),
                                filled(frame, fmt::format("mul({}(x, a), 0.0)", other))));
            refused(fmt::format("{0} => {1}", filled(frame, "reduce_sum(x:float, a)"),
                                filled(frame, fmt::format("add(reduce_sum(x, a), sub({0}(x, a), {0}(x, a)))", other))));
        }
    // An empty list of axes is all of them, or none where that is said.
    refused(
        "div(exp(sub(x:float, reduce_max(x, a, noop_with_empty_axes=1))), reduce_sum(exp(sub(x, reduce_max(x, a, "
        "noop_with_empty_axes=1))), a)) => div(exp(x), reduce_sum(exp(x), a))");
    EXPECT_GE(refused.count, 100);
    expect_proved(
        "some [reassociates, grows]: reduce_sum(exp(sub(x:float, reduce_max(x, a))), a) => "
        "div(reduce_sum(exp(x), a), exp(reduce_max(x, a))) if count(x) > 0");
    expect_proved(
        "there [reassociates]: div(exp(sub(x:float, reduce_max(x, a))), reduce_sum(exp(sub(x, reduce_max(x, "
        "a))), a)) => div(exp(x), reduce_sum(exp(x), a))");
}

TEST(Soundness, AttributesArePartOfATerm) {
    Refused refused;
    const std::pair<const char*, const char*> pairs[] = {
        {"mod(a, b)", "mod(a, b, fmod=1)"},
        {"gather(a, b)", "gather(a, b, axis=-1)"},
        {"gather(a, b, axis=0)", "gather(a, b, axis=1)"},
        {"reduce_sum(a, b)", "reduce_sum(a, b, keepdims=0)"},
        {"reduce_max(a, b)", "reduce_max(a, b, noop_with_empty_axes=1)"},
        {"concat(a, b, axis=0)", "concat(a, b, axis=-1)"},
        {"bit_shift(a, b, direction=\"LEFT\")", "bit_shift(a, b, direction=\"RIGHT\")"},
        {"cum_sum(a, b)", "cum_sum(a, b, reverse=1)"},
        {"cum_sum(a, b, exclusive=1)", "cum_sum(a, b)"},
        {"arg_max(a)", "arg_max(a, axis=1)"},
        {"arg_max(a, axis=0, keepdims=0)", "arg_max(a, axis=0, keepdims=0, select_last_index=1)"},
        {"arg_min(a)", "arg_min(a, select_last_index=1)"}};
    for (const auto& [one, other] : pairs)
        for (const auto& [p, q] : {std::pair(one, other), std::pair(other, one)}) {
            refused(
                fmt::format("div(exp(sub(x:float, reduce_max(x, {0}))), reduce_sum(exp(sub(x, reduce_max(x, {1}))), "
                            "{0})) => div(exp(x), reduce_sum(exp(x), {0}))",
                            p, q));
            refused(
                fmt::format("div(exp(sub(x:float, reduce_max(x, {1}))), reduce_sum(exp(sub(x, reduce_max(x, {0}))), "
                            "{0})) => div(exp(x), reduce_sum(exp(x), {0}))",
                            p, q));
            refused(
                fmt::format("div(exp(sub(x:float, reduce_max(x, {0}))), reduce_sum(exp(sub(x, reduce_max(x, {0}))), "
                            "{1})) => div(exp(x), reduce_sum(exp(x), {1}))",
                            p, q));
            refused(fmt::format("reduce_sum(x:float, {}) => reduce_sum(x, {})", p, q));
            refused(fmt::format("slice(x, {0}, {0}) => slice(x, {0}, {1})", p, q));
            refused(fmt::format("neg(neg(gather(x, {0}))) => gather(x, {1})", p, q));
        }
    EXPECT_GE(refused.count, 100);
    expect_proved(
        "same [reassociates]: div(exp(sub(x:float, reduce_max(x, mod(a, b)))), reduce_sum(exp(sub(x, "
        "reduce_max(x, mod(a, b)))), mod(a, b))) => div(exp(x), reduce_sum(exp(x), mod(a, b)))");
}

TEST(Soundness, ArithmeticStaysInItsType) {
    Refused refused;
    const std::pair<const char*, int> types[] = {{"f16", 1}, {"f16", 11}, {"bf16", 1}, {"bf16", 11}, {"f32", 11}};
    for (const auto& [narrow, wide] : types)
        for (const char* op : {"add", "sub", "mul", "div", "matmul", "pow", "sum", "mean"})
            for (const char* frame : {"{}", "relu({})", "neg({})", "transpose({}, perm=[1,0])"}) {
                const std::string l = fmt::format("{0}(cast(x:{1}, to={2}), cast(y:{1}, to={2}))", op, narrow, wide);
                const std::string r = fmt::format("cast({0}(x, y), to={1})", op, wide);
                refused(fmt::format("{} => {}", filled(frame, l), filled(frame, r)));
            }
    for (const auto& [narrow, wide] : types) {
        refused(fmt::format("reduce_sum(cast(x:{0}, to={1}), a) => cast(reduce_sum(x, a), to={1})", narrow, wide));
        refused(fmt::format("exp(cast(x:{0}, to={1})) => cast(exp(x), to={1})", narrow, wide));
        refused(fmt::format("mul(cast(add(x:{0}, y), to={1}), cast(y, to={1})) => cast(mul(add(x, y), y), to={1})",
                            narrow, wide));
    }
    refused("cast(mul(cast(x:float, to=11), cast(y:float, to=11)), to=1) => cast(mul(x, y), to=1)");
    refused("cast(add(cast(x:float, to=11), cast(x, to=11)), to=1) => cast(add(x, x), to=1)");
    EXPECT_GE(refused.count, 100);
    for (const char* text :
         {"mul(cast(x:f16, to=1), cast(y:f16, to=1)) => cast(mul(x, y), to=1) where x: [M], y: [M]",
          "matmul(cast(x:f16, to=1), cast(y:f16, to=1)) => cast(matmul(x, y), to=1) where x: [M,K], y: [K,N]"})
        EXPECT_FALSE(proves(claim_of(text))) << text;
    EXPECT_TRUE(
        proves(claim_of("cast(mul(x:f16, y:f16), to=1) => mul(cast(x, to=1), cast(y, to=1)) where x: [M], y: [M]")));
    expect_proved("back: cast(cast(x:f32, to=11), to=1) => x");
    expect_proved("moved: cast(transpose(x:f16, perm=p), to=1) => transpose(cast(x, to=1), perm=p)");
    EXPECT_FALSE(believes(rule_of("lost: cast(cast(x:f32, to=10), to=1) => x")));
    EXPECT_FALSE(believes(rule_of("lost: cast(cast(x:i64, to=11), to=7) => x")));
}

// Each was believed once, and found by rules drawn at random or by hand.
TEST(Soundness, WhatWasFoundByAttackIsRefused) {
    Refused refused;
    for (const char* text :
         {// the right side's literals get the type of another operand
          "equal(where(z, -1, 0.5), 1) => equal(where(z, -1, 0.5), 1)", "pow(y:int, -1) => pow(y, -1)",
          "pow(y, 2) => pow(y, 2)", "cast(where(z, 1.0, -1), ..r) => cast(where(z, 1.0, -1), ..r)",
          "max(x:u8, y) => max(max(x, y), 300)",
          // what is left out must fit, and be read within its sizes
          "where(reduce_max(transpose(x, perm=p), a), y:f32, y) => where(reduce_max(x, a), y, y)",
          "gather(or(z, 1), i, axis=k) => gather(gather(or(z, 1), i, axis=k), i, axis=k)",
          "reshape(sign(squeeze(x:int, a)), [-1]) => reshape(sign(squeeze(squeeze(x, a), a)), [-1])",
          "add(x:int, mul(y, 0)) => add(x, sub(transpose(y, perm=[1, 0]), transpose(y, perm=[1, 0])))",
          // axes of another tensor's rank
          "add(slice(slice(x, s, _, a, t), s2, _, b, t), u) => add(slice(x, [ints(s)[0] + ints(s2)[0]], [99], ints(a), "
          "[1]), u) if length(ints(a)) == 1 and axes_in(ints(a), rank(u)) == axes_in(ints(b), rank(u)) and ints(t) == "
          "[1] "
          "and ints(s)[0] >= 0 and ints(s2)[0] >= 0",
          // f64 is normalized in f32
          "rms_normalization(x, s) => mul(div(x, sqrt(add(reduce_mean(mul(x, x), [rank(x) - 1]), 1e-05))), s)",
          // sizes that a constant enlarges
          "reduce_sum(where(c, x:float, _), a, keepdims=0) => reduce_sum(x, a, keepdims=0) if all_true(c)",
          "reduce_sum(mul(x:float, c), a, keepdims=0) => reduce_sum(x, a, keepdims=0) if number(c) == 1.0"})
        refused(text);
    EXPECT_EQ(refused.count, 13);
    for (const char* text :
         {"order: mean(xs..., x:float) => mean(x, xs...)", "order: sum(x:float, xs...) => sum(xs..., x)",
          "order: max(expand(x:float, _), y) => max(x, y)", "power: pow(x:i64, 1) => x"})
        EXPECT_FALSE(believes(rule_of(text))) << text;
}

// One element may have a higher rank, large integers share a double, a cast widens, and integers may be added as
// floats.
TEST(Soundness, WhatASecondAttackFoundIsRefused) {
    const std::string ranks = " if count(c) == 1 and axes_in(ints(a), rank(x)) == [axis_in(1, rank(x))]";
    for (const std::string& text :
         {"r [reassociates]: neg(neg(reduce_sum(add(x:float, c), a, keepdims=0))) => "
          "reduce_sum(add(x, c), [1], keepdims=0)" +
              ranks,
          "r: neg(neg(reduce_max(add(x:int, c), a, keepdims=0))) => reduce_max(add(x, c), [1], keepdims=0)" + ranks,
          std::string("r: where(b, add(x:i64, c), add(x, d)) => add(x, c) if number(c) == 9007199254740992.0 and "
                      "number(d) == 9007199254740992.0"),
          std::string("r: neg(neg(add(x:i64, 9007199254740992))) => add(x, 9007199254740992)"),
          std::string("r: reshape(x, s) => squeeze(x, s)"),
          std::string("r [reassociates]: mul(cast(x:f32, to=11), sigmoid(mul(cast(x, to=11), c))) => "
                      "swish(cast(x, to=11), alpha=number(c)) if rank(c) == 0 and const(c) and element_bits(x) <= 32"),
          std::string("r: sum(cast(x:i16, to=1), sum(mul(cast(y:i16, to=1), cast(y, to=1)), cast(z:i16, to=1))) => "
                      "sum(cast(x, to=1), mul(cast(y, to=1), cast(y, to=1)), cast(z, to=1))")})
        EXPECT_FALSE(believes(rule_of(text))) << text;
    // With as many elements as a number, and as floats, they hold.
    expect_proved("r: neg(neg(add(x:float, 9007199254740992.0))) => add(x, 9007199254740992.0)");
}

TEST(Soundness, ALiteralHasTheTypeOfItsParameter) {
    const Rule rule = rule_of("zero [reassociates, grows]: mul(x:float, cast(c:bool, ..t)) => where(c, x, 0.0)");
    Graph graph("g");
    Value* x = graph.add_input("x", Type(DType::f64, Shape(Sizes{2})));
    Value* c = graph.add_input("c", Type(DType::boolean, Shape(Sizes{2})));
    Result<Node*> inner = graph.add({find_op("cast"), {c}, {{"to", Attr(int64_t{11})}}, 1});
    ASSERT_TRUE(inner.ok());
    Result<Node*> outer = graph.add({find_op("mul"), {x, (*inner)->output(0)}, {}, 1});
    ASSERT_TRUE(outer.ok());
    graph.add_output((*outer)->output(0));
    PassContext context;
    ASSERT_TRUE(apply_rule(rule, *graph.outputs()[0], context, true));
    EXPECT_EQ(graph.outputs()[0]->node()->input(2)->type().tensor().dtype, DType::f64);
}

TEST(Soundness, WhatUsersExpectIsProved) {
    for (const char* text :
         {"cast: cast(cast(x:f32, to=11), to=1) => x", "abs [reassociates]: max(x:float, neg(x)) => abs(x)",
          "abs [reassociates, grows]: abs(x:float) => max(x, neg(x))",
          "min [reassociates]: where(less(x:float, y), x, y) => min(x, y)",
          "min: where(less(x:int, y), x, y) => min(x, y)",
          "max [reassociates]: where(greater(x:float, y), x, y) => max(x, y)",
          "log [reassociates]: sub(log(x:float), log(y)) => log(div(x, y))",
          "root [reassociates]: mul(sqrt(x:float), sqrt(y)) => sqrt(mul(x, y))", "less: greater(x, y) => less(y, x)",
          "less: greater_or_equal(x, y) => less_or_equal(y, x)", "round: round(neg(x:float)) => neg(round(x))",
          "xor: xor(xor(x, y), y) => x", "xor: bitwise_xor(bitwise_xor(x, y), y) => x",
          "l1 [reassociates]: reduce_l1(neg(x:float), a?, ..r) => reduce_l1(x, a?, ..r)",
          "max [reassociates]: reduce_max(add(x:float, y), a) => add(reduce_max(x, a), y) if rank(y) == 0",
          "max [reassociates]: max(add(x:float, z), add(y, z)) => add(max(x, y), z)",
          "max [reassociates, grows]: max(x:float, y) => add(x, relu(sub(y, x)))"}) {
        expect_proved(text);
        Result<Verdict> verdict = refute(rule_of(text), {.instances = 60, .minimise = false});
        ASSERT_TRUE(verdict.ok());
        EXPECT_NE(verdict->kind, Verdict::Kind::Refuted) << verdict->to_string();
    }
    // Without what they need.
    for (const char* text :
         {"log [reassociates, grows]: log(div(x:float, y)) => sub(log(x), log(y))",
          "root [reassociates, grows]: sqrt(mul(x:float, y)) => mul(sqrt(x), sqrt(y))",
          "max [reassociates]: reduce_max(add(x:float, y), a) => add(reduce_max(x, a), y)",
          "max [reassociates]: reduce_max(add(x:int, y), a) => add(reduce_max(x, a), y) if rank(y) == 0",
          "abs: max(x:int, neg(x)) => abs(x)", "min: where(less(x:float, y), x, y) => min(x, y)",
          "abs: max(x:float, neg(x)) => abs(x)", "cast: cast(cast(x:f64, to=1), to=11) => x"})
        EXPECT_FALSE(believes(rule_of(text))) << text;
}

}  // namespace
}  // namespace tessera::doors_test
