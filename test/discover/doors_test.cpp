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

TEST(Doors, ALiteralIsOneNumberInTheEngineToo) {
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
TEST(Doors, TheRightSideIsDefinedWhereTheLeftIs) {
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

TEST(Doors, WhatAProofFixesTheRuleAsks) {
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

TEST(Doors, AProofOverTheRealsIsForFloats) {
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

TEST(Doors, ExactMeansTheSameRoundings) {
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

TEST(Doors, ANarrowingCastIsAnOperation) {
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

TEST(Doors, DrawsAreNoProof) {
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

}  // namespace
}  // namespace tessera::doors_test
