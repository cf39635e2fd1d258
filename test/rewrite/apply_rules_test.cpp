// The rule language and its engine.
#include "rewrite/rules/apply_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/text/parse.h"
#include "graph/text/print.h"
#include "graph/verify.h"

namespace tessera::apply_rules_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::unique_ptr<Graph> graph_of(const std::string& text) {
    auto g = parse(text);
    EXPECT_TRUE(g.ok()) << (g.ok() ? "" : g.error().to_string());
    return std::move(*g);
}

Result<std::string> rewritten(const std::string& rules, const std::string& text,
                              Precision precision = Precision::Default) {
    RuleSet set(TRY(read_rules(rules, "test.rules")));
    std::unique_ptr<Graph> g = graph_of(text);
    PassContext context;
    context.precision = precision;
    context.record = true;
    TRY(apply_rules(*g, set, context));
    verify(*g);
    return print(*g, {.types = false});
}

std::string after(const std::string& rules, const std::string& text, Precision precision = Precision::Default) {
    Result<std::string> out = rewritten(rules, text, precision);
    return out.ok() ? *out : out.error().to_string();
}

std::string error_of(const std::string& rules) {
    Result<Rules> read = read_rules(rules, "test.rules");
    return read.ok() ? "no error" : read.error().to_string();
}

TEST(rules, print_as_they_are_read) {
    for (const RuleFile& file : built_in_rule_files())
        for (const Rule& rule : built_in_rules(file.name)) {
            std::string text = to_string(rule);
            Result<Rules> again = read_rules(text, "again");
            ASSERT_TRUE(again.ok()) << text << "\n" << again.error().to_string();
            ASSERT_EQ(again->size(), 1u) << text;
            EXPECT_EQ(to_string((*again)[0]), text);
        }
}

TEST(rules, that_are_deep_are_refused) {
    for (std::string piece : {"not ", "-", "- ", "1 + ", "("}) {
        std::string condition;
        for (int i = 0; i < 100000; ++i) condition += piece;
        EXPECT_THAT(error_of("a: relu(relu(x)) => relu(x) if " + condition + "1"), HasSubstr("E0109")) << piece;
    }
}

TEST(rules, are_read_from_files_only) {
    EXPECT_EQ(load_rules(".").error().code(), Code::E0101);
    EXPECT_EQ(load_rules("no.rules").error().code(), Code::E0101);
}

TEST(rules, say_where_they_are_wrong) {
    EXPECT_THAT(error_of("a: relu(x) =>"), AllOf(HasSubstr("E0301"), HasSubstr("test.rules:1:14")));
    EXPECT_THAT(error_of("a: relu(x) => x\nb relu(x) => x"), AllOf(HasSubstr("E0301"), HasSubstr("test.rules:2:3")));
    EXPECT_THAT(error_of("a: relu(x) => y"),
                AllOf(HasSubstr("E0302"), HasSubstr("test.rules:1:15"), HasSubstr("y is not bound")));
    EXPECT_THAT(error_of("a: rely(x) => x"), AllOf(HasSubstr("E0302"), HasSubstr("did you mean \"relu\"?")));
    EXPECT_THAT(error_of("a: transpose(x, perm=x) => x"), AllOf(HasSubstr("E0303"), HasSubstr("test.rules:1:22")));
    EXPECT_THAT(error_of("a: transpose(x, per=p) => x"),
                AllOf(HasSubstr("E0303"), HasSubstr("no attribute per"), HasSubstr("did you mean \"perm\"?")));
    EXPECT_THAT(error_of("a: softmax(x, axis=a) => transpose(x, perm=a)"),
                AllOf(HasSubstr("E0303"), HasSubstr("an integer")));
    EXPECT_THAT(error_of("a: relu(x, y) => x"), HasSubstr("at most 1 inputs"));
    EXPECT_THAT(error_of("a: add(x) => x"), HasSubstr("at least 2 inputs"));
    EXPECT_THAT(error_of("a: relu(x) => x if rank(x)"), HasSubstr("a condition is true or false"));
    EXPECT_THAT(error_of("a: relu(x) => x if inverse(x) == [1]"), HasSubstr("inverse is not defined for (a tensor)"));
    EXPECT_THAT(error_of("a: (relu(x), relu(y)) => (x, y)"), HasSubstr("shares no tensor"));
    EXPECT_THAT(error_of("a: (relu(x), abs(x)) => x"), HasSubstr("1 results for 2 patterns"));
    EXPECT_THAT(error_of("a [exactly]: relu(x) => x"), AllOf(HasSubstr("test.rules:1:4"), HasSubstr("exact")));
    EXPECT_THAT(error_of("a: relu(x) => x\na: abs(x) => x"), HasSubstr("two rules named a"));
    EXPECT_THAT(error_of("a: x => x"), HasSubstr("begins with an op"));
    EXPECT_THAT(error_of("a: add(x@transpose(x, perm=p), c) => add(x, c)"),
                AllOf(HasSubstr("E0303"), HasSubstr("test.rules:1:10"), HasSubstr("x is among its own operands")));
    EXPECT_THAT(error_of("a: add(x@relu(y), y@neg(x)) => x"), HasSubstr("among its own operands"));
    EXPECT_THAT(error_of("a: (x@relu(add(y, z)), y@abs(add(z, x))) => (x, y)"), HasSubstr("among its own operands"));
    std::string deep = "a: ";
    for (int i = 0; i < 10000; ++i) deep += "relu(";
    EXPECT_THAT(error_of(deep), HasSubstr("E0109"));
}

TEST(apply_rules, composes_permutations) {
    std::string out = after("t: transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=permute(p, q))",
                            "graph g(x: f32[2,3,4]) { return transpose(transpose(x, [1,2,0]), [0,2,1]) }");
    EXPECT_THAT(out, HasSubstr("transpose(x, perm=[1,0,2])"));
}

TEST(apply_rules, tries_both_orders_of_a_commutative_op) {
    std::string rule = "silu: mul(x, sigmoid(x)) => neg(x)";
    EXPECT_THAT(after(rule, "graph g(x: f32[2]) { return mul(sigmoid(x), x) }"), HasSubstr("neg(x)"));
    EXPECT_THAT(after(rule, "graph g(x: f32[2]) { return mul(x, sigmoid(x)) }"), HasSubstr("neg(x)"));
    EXPECT_THAT(after(rule, "graph g(x: f32[2], y: f32[2]) { return mul(y, sigmoid(x)) }"), HasSubstr("mul(y"));
}

TEST(apply_rules, keeps_what_others_use) {
    // One node goes and two come: only where the inner one goes too.
    std::string rule = "r: mul(add(x, c), d) => add(mul(x, d), mul(c, d)) if const(c, d)";
    EXPECT_THAT(after(rule, "graph g(x: f32[2]) { return mul(add(x, 1.0), 2.0) }"), HasSubstr("add("));
    std::string shared = "graph g(x: f32[2]) { %a = add(x, 1.0) return mul(%a, 2.0), %a }";
    EXPECT_THAT(after(rule, shared), AllOf(HasSubstr("%a = add(x"), HasSubstr("mul(%a")));
}

TEST(apply_rules, admits_by_precision) {
    std::string rule = "z [reassociates]: add(x:float, 0.0) => x";
    std::string text = "graph g(x: f32[2]) { return add(x, 0.0) }";
    EXPECT_THAT(after(rule, text, Precision::Strict), HasSubstr("add(x"));
    EXPECT_THAT(after(rule, text, Precision::Default), HasSubstr("return x"));
    EXPECT_THAT(after("z: add(x:float, -0.0) => x", text), HasSubstr("add(x"));
}

TEST(apply_rules, never_changes_a_type) {
    // The zero has a larger shape than x.
    std::string out = after("z: add(x:float, 0.0) => x", "graph g(x: f32[3]) { return add(x, [0.0, 0.0, 0.0]) }");
    EXPECT_THAT(out, HasSubstr("return x"));
    out = after("z: add(x:float, 0.0) => x", "graph g(x: f32[1]) { return add(x, [0.0, 0.0, 0.0]) }");
    EXPECT_THAT(out, HasSubstr("add(x"));
}

TEST(apply_rules, replaces_siblings_that_share_an_input) {
    std::string rule =
        "m [grows]: (matmul(a, b), matmul(a, c)) => "
        "split(matmul(a, concat(b, c, axis=-1)), [dim(b, -1), dim(c, -1)], axis=-1) "
        "if const(b, c) and rank(b) == 2 and rank(c) == 2";
    std::string out =
        after(rule,
              "graph g(x: f32[N,2]) {\n const p: f32[2,1] = [1.0,2.0]\n const q: f32[2,2] = [3.0,4.0,5.0,6.0]\n"
              " %y = matmul(x, p)\n %z = matmul(x, q)\n return %y, %z }");
    EXPECT_THAT(out, HasSubstr("%y, %z = split("));
    EXPECT_THAT(out, HasSubstr("[1.0,3.0,4.0,2.0,5.0,6.0]"));
    // What the second one needs comes from the first: no merging.
    std::string chained = after(
        "m [grows]: (matmul(a, b), matmul(a, c)) => "
        "split(matmul(a, concat(b, c, axis=-1)), [dim(b, -1), dim(c, -1)], axis=-1)",
        "graph g(x: f32[2,2], p: f32[2,2]) {\n %y = matmul(x, p)\n %z = matmul(x, %y)\n return %y, %z }");
    EXPECT_THAT(chained, HasSubstr("%z = matmul(x, %y)"));
}

TEST(apply_rules, computes_nothing_heavy_twice) {
    std::string graph =
        "graph g(x: f32[N,4], w: f32[4,4]) {\n %m = matmul(x, w)\n %a = add(%m, x)\n return %a, relu(%m) }";
    EXPECT_THAT(after("r: add(matmul(a, b), c) => gemm(a, b, c)", graph), Not(HasSubstr("gemm(")));
    EXPECT_THAT(after("r: add(m@matmul(a, b), c) => sum(m, c)", graph), HasSubstr("sum(%m, x)"));
}

TEST(apply_rules, flattens_lists) {
    std::string out =
        after("c: concat(xs..., concat(ys..., axis=a), zs..., axis=a) => concat(xs..., ys..., zs..., axis=a)",
              "graph g(x: f32[2], y: f32[3]) { return concat(y, concat(x, y, axis=0), x, axis=0) }");
    EXPECT_THAT(out, HasSubstr("concat(y, x, y, x, axis=0)"));
}

TEST(apply_rules, carries_attributes_along) {
    std::string out =
        after("r: relu(conv(x, w, b?, ..a)) => conv(neg(x), w, b?, ..a)",
              "graph g(x: f32[1,2,5,5], w: f32[4,1,3,3]) { return relu(conv(x, w, group=2, pads=[1,1,0,0])) }");
    EXPECT_THAT(out, AllOf(HasSubstr("conv("), HasSubstr("group=2"), HasSubstr("pads=[1,1,0,0]"), HasSubstr("neg(x)")));
}

TEST(apply_rules, reports_a_loop) {
    std::string rules = "there: neg(abs(x)) => abs(neg(x))\nback: abs(neg(x)) => neg(abs(x))";
    EXPECT_THAT(after(rules, "graph g(x: f32[2]) { return neg(abs(x)) }"),
                AllOf(HasSubstr("E0304"), HasSubstr("there -> back"), HasSubstr("back -> there"),
                      HasSubstr("test.rules:2:1: back: abs(neg(x))")));
    EXPECT_THAT(after("more [grows]: relu(x) => relu(neg(x))", "graph g(x: f32[2]) { return relu(x) }"),
                AllOf(HasSubstr("E0304"), HasSubstr("more -> more")));
}

TEST(apply_rules, works_inside_nested_graphs) {
    std::string out = after(
        "r: relu(relu(x)) => relu(x)",
        "graph g(c: bool[], x: f32[N]) {\n %r = relu(x)\n %y = if(c, then_branch=graph yes() { return relu(relu(x)) }, "
        "else_branch=graph no() { return relu(%r) })\n return %y }");
    EXPECT_EQ(out.find("relu(%"), out.rfind("relu(%")) << out;  // what stands outside is not pulled in
}

TEST(apply_rules, forgets_the_nested_graphs_of_what_goes) {
    std::string out =
        after("drop: add(x, y) => x\nr: relu(relu(x)) => relu(x)",
              "graph g(c: bool[], x: f32[N]) {\n %y = if(c, then_branch=graph yes() { return relu(relu(x)) }, "
              "else_branch=graph no() { return relu(relu(neg(x))) })\n return add(x, %y) }");
    EXPECT_THAT(out, AllOf(HasSubstr("return x"), testing::Not(HasSubstr("if("))));
}

TEST(apply_rules, names_the_result_as_what_it_replaced) {
    std::string out = after("r: neg(relu(x)) => abs(x)",
                            "graph g(x: f32[2]) -> (out) { %a = relu(x)\n %b = neg(%a) @\"last\"\n return %b }");
    EXPECT_THAT(out, HasSubstr("%b = abs(x) @\"last\""));
}

}  // namespace
}  // namespace tessera::apply_rules_test
