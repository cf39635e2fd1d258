// The law of rules for any rank, clause by clause: written from "The law" in docs/proofs.md alone, without the checker.
// A right rule of each clause is proved, and its certificate replays. A wrong one is neither proved nor verified, by
// the certificates that a right one has and by those that claim nothing is left to prove.
#include <gtest/gtest.h>

#include "discover/check/verify_rule.h"
#include "discover/prove/prove_rule.h"
#include "rewrite/refute/refute.h"

namespace tessera::law_test {
namespace {

Rule rule_of(const std::string& text) {
    Result<Rules> rules = read_rules(text, "law");
    EXPECT_TRUE(rules.ok()) << text << "\n" << (rules.ok() ? "" : rules.error().to_string());
    return rules.ok() && rules->size() == 1 ? (*rules)[0] : Rule{};
}

struct Clause {
    const char* name;
    std::vector<const char*> right, wrong;
};

const std::vector<Clause>& clauses() {
    static const std::vector<Clause> all{
        {"D1 a variable",
         {"a: relu(relu(x)) => relu(x)", "a: add(x, y) => add(y, x)", "a: not(not(x)) => x"},
         {"a: sub(x, y) => sub(y, x)", "a: floor(x) => x", "a [reassociates]: div(mul(x, y), y) => x",
          "a: matmul(x, y) => matmul(y, x)", "a: transpose(x) => x"}},
        {"D2 an unnamed operand",
         {"a: where(_, x, x) => x"},
         {"a: where(_, x, y) => x", "a [reassociates]: sub(add(x:float, _), _) => x"}},
        {"D3 an optional operand",
         {"a: neg(neg(conv(x, w, b?, ..r))) => conv(x, w, b?, ..r)"},
         {"a: conv(x, w, b?, ..r) => conv(x, w, ..r)",
          "a [reassociates]: clip(max(x, y), l?, l?) => clip(min(x, y), l?, l?)",
          "a [reassociates]: gemm(x, y, b?) => matmul(x, y)"}},
        {"D4 a list",
         {"a [reassociates]: max(max(xs...), y) => max(xs..., y)"},
         {"a [reassociates]: max(x, min(ys...)) => max(x, ys...)",
          "a [reassociates]: mean(x, ys...) => mean(ys..., ys...)", "a: max(xs...) => min(xs...)",
          "a [reassociates]: mean(mean(xs...), y) => mean(xs..., y)"}},
        {"D5 a literal on the left",
         {"a: mul(x:float, 1.0) => x", "a: sub(x:float, 0.0) => x", "a: add(x:float, -0.0) => x",
          "a [reassociates]: add(x:float, 0.0) => x"},
         {"a: sub(x:float, 0) => x", "a: add(x:float, 0.0) => x", "a: mul(x, 2) => x", "a: pow(x, 0) => x"}},
        {"D6 a literal on the right",
         {"a [reassociates]: add(x:float, x) => mul(x, 2.0)"},
         {"a [reassociates]: add(x, x) => mul(x, 2.5)", "a [reassociates]: sub(x:float, x) => mul(x, 1e40)",
          "a [reassociates]: max(x, x) => max(x, 300)"}},
        {"D7 an attribute",
         {"a: neg(neg(softmax(x, axis=a))) => softmax(x, axis=a)"},
         {"a: softmax(x, axis=a) => softmax(x)", "a: softmax(x, axis=a) => softmax(x, axis=a + 1)",
          "a [reassociates]: leaky_relu(x, alpha=a) => leaky_relu(x, alpha=a + 1.0)"}},
        {"D8 an attribute that is not named",
         {"a: neg(neg(softmax(x))) => softmax(x, axis=-1)"},
         {"a: softmax(x) => softmax(x, axis=1)", "a: add(mod(x, y), z) => add(mod(x, y, fmod=1), z)"}},
        {"D9 a rest",
         {"a: neg(neg(transpose(x, ..r))) => transpose(x, ..r)",
          "a [reassociates]: gemm(transpose(x, perm=[1, 0]), y) => gemm(x, y, transA=1)"},
         {"a: neg(neg(transpose(x, ..r))) => transpose(x)",
          "a [reassociates]: gemm(transpose(x, perm=[1, 0]), y, ..r) => gemm(x, y, transA=1, ..r)",
          "a: neg(neg(conv(x, w, ..r))) => conv(x, w, group=2, ..r)", "a: softmax(x, ..r) => softmax(x)"}},
        {"D10 number(c)",
         {"a [reassociates]: pow(x:float, c) => mul(x, x) if number(c) == 2.0",
          "a [reassociates]: add(x:float, c) => x if number(c) == 0.0"},
         {"a [reassociates]: pow(x:float, c) => mul(x, x) if number(c) == 3.0",
          "a: add(x:float, c) => x if number(c) == 0.0", "a [reassociates]: mul(x:float, c) => x if number(c) == 0.0"}},
        {"D11 all_true(c)",
         {"a: and(x, c) => x if all_true(c)"},
         {"a: mul(x:float, c) => x if const(c) and all_true(c)", "a: div(x:float, c) => x if const(c) and all_true(c)",
          "a: pow(x:float, c) => x if const(c) and all_true(c)", "a: or(x, c) => x if all_true(c)"}},
        {"D12 another condition",
         {"a: neg(neg(x)) => x if const(x)"},
         {"a: sub(x, y) => sub(y, x) if const(x)", "a: relu(x) => x if rank(x) == 2",
          "a [reassociates]: mul(x:float, c) => x if invertible(c)"}},
        {"D13 operands in either order",
         {"a [reassociates]: max(x, max(y, z)) => max(max(x, y), z)", "a: mul(x, y) => mul(y, x)"},
         {"a: max(x:float, max(y, z)) => max(max(x, y), z)", "a: pow(x, y) => pow(y, x)",
          "a: add(x:float, add(y, z)) => add(add(x, y), z)"}},
        {"O1 demands",
         {"a: neg(neg(add(log(x), y))) => add(log(x), y)"},
         {"a [reassociates]: relu(matmul(matmul(log(x), w), v)) => "
          "relu(sub(add(matmul(matmul(log(x), w), v), matmul(matmul(log(x), w), v)), matmul(matmul(log(x), w), v)))",
          "a [reassociates]: x1@neg(x:float) => sub(add(x1, log(x)), log(x))",
          "a [reassociates]: neg(x:float) => mul(neg(x), div(x, x))",
          "a [reassociates]: exp(neg(x:float)) => reciprocal(reciprocal(exp(neg(div(x, div(x, x))))))"}},
        {"O2 empty reductions",
         {"a: neg(neg(reduce_sum(x, a))) => reduce_sum(x, a)"},
         {"a [reassociates]: reduce_sum(exp(sub(x:float, reduce_max(x, a))), a) => "
          "div(reduce_sum(exp(x), a), exp(reduce_max(x, a)))",
          "a [reassociates]: reduce_sum(exp(sub(x:float, reduce_mean(x, a))), a) => "
          "div(reduce_sum(exp(x), a), exp(reduce_mean(x, a)))",
          "a [reassociates]: reduce_sum(neg(x:float), a) => sub(reduce_sum(neg(x), a), mul(reduce_max(x, a), 0.0))"}},
        {"O3 values that are not real numbers",
         {"a: not(less(x:i32, y)) => greater_or_equal(x, y)", "a: greater(x, y) => less(y, x)"},
         {"a: not(less(x:float, y)) => greater_or_equal(x, y)",
          "a: or(less(x:float, y), greater_or_equal(x, y)) => equal(x, x)"}},
        {"O4 dropped operands",
         {"a: where(c, x, x) => x"},
         {"a: neg(gather(x, i)) => neg(gather(x, neg(i)))", "a: add(x, gather(y, i)) => add(x, y)"}},
        {"O5 the types that are computed in",
         {"a: cast(cast(x:f32, to=11), to=1) => x"},
         {"a [reassociates]: mul(cast(x:f16, to=1), cast(y:f16, to=1)) => cast(mul(x, y), to=1)",
          "a: cast(cast(x:f32, to=10), to=1) => x", "a: cast(cast(x:f32, to=6), to=1) => x",
          "a [reassociates]: exp(cast(x:f16, to=1)) => cast(exp(x), to=1)"}},
        {"C1 exact",
         {"a [reassociates]: mul(x:float, add(y, z)) => add(mul(x, y), mul(x, z))",
          "a: mul(x:i32, add(y, z)) => add(mul(x, y), mul(x, z))"},
         {"a: mul(x:float, add(y, z)) => add(mul(x, y), mul(x, z))", "a: div(x:float, y) => mul(x, reciprocal(y))",
          "a: neg(sub(x:float, y)) => sub(y, x)"}},
        {"C2 cancellation",
         {"a [reassociates]: sub(x:float, y) => add(x, neg(y))"},
         {"a [reassociates]: add(x:float, y) => sub(add(x, add(mul(y, y), y)), mul(y, y))",
          "a [reassociates]: neg(x:f32) => sub(sub(1e30, x), 1e30)"}},
    };
    return all;
}

Certificates named(Certificates certificates, const std::string& name) {
    Certificates out;
    for (auto& [from, entry] : certificates) out.emplace(name, std::move(entry));
    return out;
}

Certificates claims_nothing_is_left(const std::string& name, const char* kind) {
    CertificateEntry entry;
    entry.certificate.text = fmt::format("{}\n", kind);
    return {{name, entry}};
}

TEST(Law, WhatIsRightIsProved) {
    for (const Clause& clause : clauses())
        for (const char* text : clause.right) {
            const Rule rule = rule_of(text);
            const RuleProof proof = prove_for_any_rank(rule);
            ASSERT_TRUE(proof.proved) << clause.name << ": " << text << "\n" << proof.reason;
            Result<Certificates> read = read_certificates(proof.entry, "law");
            ASSERT_TRUE(read.ok());
            Status verified = verify_rule(rule, *read);
            EXPECT_TRUE(verified.ok()) << clause.name << ": " << text << "\n" << verified.error().to_string();
        }
}

TEST(Law, WhatIsWrongIsRefused) {
    int refused = 0;
    for (const Clause& clause : clauses()) {
        std::vector<Certificates> offered{claims_nothing_is_left("a", "elements"),
                                          claims_nothing_is_left("a", "elements by meaning")};
        for (const char* text : clause.right)
            if (Result<Certificates> read = read_certificates(prove_for_any_rank(rule_of(text)).entry, "law");
                read.ok())
                offered.push_back(named(std::move(*read), "a"));
        ASSERT_EQ(offered.size(), 2 + clause.right.size());
        for (const char* text : clause.wrong) {
            const Rule rule = rule_of(text);
            EXPECT_FALSE(prove_for_any_rank(rule).proved) << clause.name << ": " << text;
            for (const Certificates& certificates : offered) {
                const Status verified = verify_rule(rule, certificates);
                EXPECT_FALSE(verified.ok()) << clause.name << ": " << text;
                refused += !verified.ok();
            }
        }
    }
    EXPECT_GE(refused, 150);
}

// That the rules above are right and wrong is not taken on trust either.
TEST(Law, TheRefuterAgrees) {
    RefuteOptions effort;
    effort.instances = 60;
    effort.draws = 6000;
    effort.minimise = false;
    for (const Clause& clause : clauses()) {
        for (const char* text : clause.right) {
            Result<Verdict> v = refute(rule_of(text), effort);
            ASSERT_TRUE(v.ok());
            EXPECT_NE(v->kind, Verdict::Kind::Refuted) << clause.name << ": " << text << "\n" << v->to_string();
        }
        for (const char* text : clause.wrong) {
            Result<Verdict> v = refute(rule_of(text), effort);
            ASSERT_TRUE(v.ok());
            EXPECT_NE(v->kind, Verdict::Kind::Holds) << clause.name << ": " << text;
        }
    }
}

}  // namespace
}  // namespace tessera::law_test
