#include "graph/evaluate/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/memory.h"
#include "graph/builder.h"

namespace tessera::evaluate_test {
namespace {

using testing::HasSubstr;

Tensor floats(Sizes sizes, std::vector<float> values) { return Tensor::of<float>(std::move(sizes), values); }

std::vector<float> values(const Datum& d) {
    auto span = d.tensor().as<float>();
    return {span.begin(), span.end()};
}

// y = relu(a + b) * 2, a and b of [N,3] and [N,1]
struct Simple {
    Graph graph{"simple"};
    Simple() {
        Value* a = graph.add_input("a", Type(DType::f32, {symbol("N"), 3}));
        Value* b = graph.add_input("b", Type(DType::f32, {symbol("N"), 1}), std::nullopt);
        Builder build(graph);
        Value* y = build.mul(build.op("relu", {build.add(a, b)}), build.scalar(2, DType::f32));
        EXPECT_TRUE(build.status().ok());
        graph.add_output(y, "y");
    }
};

TEST(evaluate, runs_a_graph) {
    Simple s;
    auto out = evaluate(s.graph, {{"a", floats({2, 3}, {1, -2, 3, -4, 5, -6})}, {"b", floats({2, 1}, {1, -1})}});
    ASSERT_TRUE(out.ok()) << out.error().to_string();
    EXPECT_EQ(values((*out)[0]), (std::vector<float>{4, 0, 8, 0, 8, 0}));
}

TEST(evaluate, says_what_is_wrong_with_inputs) {
    Simple s;
    const Datum a = floats({2, 3}, {1, 2, 3, 4, 5, 6}), b = floats({2, 1}, {1, 1});
    struct Row {
        Inputs inputs;
        Code code;
        std::vector<std::string> says;
    };
    const Row rows[] = {
        {{{"a", a}, {"b", b}, {"c", b}}, Code::E0401, {"\"c\"", "a: f32[N,3]"}},
        {{{"a", a}}, Code::E0402, {"\"b\"", "f32[N,1]"}},
        {{{"a", Datum(Tensor::ints({1}))}, {"b", b}}, Code::E0403, {"i64", "f32"}},
        {{{"a", floats({3}, {1, 2, 3})}, {"b", b}}, Code::E0404, {"[3]", "[N,3]"}},
        {{{"a", floats({1, 2}, {1, 2})}, {"b", b}}, Code::E0405, {"[1,2]", "[N,3]", "dimension 1"}},
        {{{"a", a}, {"b", floats({1, 1}, {1})}}, Code::E0405, {"[1,1]", "[N,1]", "N is 2 by dimension 0 of \"a\""}},
    };
    for (const Row& row : rows) {
        auto out = evaluate(s.graph, row.inputs);
        ASSERT_FALSE(out.ok());
        EXPECT_EQ(out.error().code(), row.code) << out.error().to_string();
        for (const std::string& text : row.says) EXPECT_THAT(out.error().to_string(), HasSubstr(text));
    }
}

TEST(evaluate, takes_defaults) {
    Graph g;
    Value* a = g.add_input("a", Type(DType::f32, {2}), floats({2}, {3, 4}));
    g.add_output(a);
    auto out = evaluate(g, {});
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(values((*out)[0]), (std::vector<float>{3, 4}));
}

TEST(evaluate, names_the_node_of_an_error) {
    Graph g;
    Value* x = g.add_input("x", Type(DType::f32, {3}));
    Value* i = g.add_input("i", Type(DType::i64, {1}));
    auto node = g.add({.op = find_op("gather"), .inputs = {x, i}, .name = "pick"});
    ASSERT_TRUE(node.ok()) << node.error().to_string();
    g.add_output((*node)->output());
    auto out = evaluate(g, {{"x", floats({3}, {1, 2, 3})}, {"i", Datum(Tensor::ints({3}))}});
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.error().code(), Code::E0406);
    EXPECT_THAT(out.error().where(), HasSubstr("pick"));
}

// 40 additions of a megabyte each: only a few are alive at a time.
TEST(evaluate, frees_values_after_their_last_use) {
    Graph g;
    Value* x = g.add_input("x", Type(DType::f32, {1 << 18}));
    Builder build(g);
    Value* y = x;
    for (int i = 0; i < 40; ++i) y = build.add(y, x);
    g.add_output(y);
    auto input = Tensor::zeros(DType::f32, {1 << 18});
    ASSERT_TRUE(input.ok());
    const int64_t before = memory_limit();
    set_memory_limit(memory_in_use() + (8 << 20));
    auto out = evaluate(g, {{"x", Datum(*input)}});
    set_memory_limit(memory_in_use() + (1 << 20));
    auto refused = evaluate(g, {{"x", Datum(*input)}});
    set_memory_limit(before);
    EXPECT_TRUE(out.ok()) << out.error().to_string();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::E0408);
}

TEST(evaluate, stops_at_the_work_limit) {
    Graph g;
    Value* x = g.add_input("x", Type(DType::f32, {1000, 1000}));
    Builder build(g);
    g.add_output(build.matmul(x, x));
    auto input = Tensor::zeros(DType::f32, {1000, 1000});
    auto out = evaluate(g, {{"x", Datum(*input)}}, {.max_work = 1000000});
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.error().code(), Code::E0408);
}

TEST(evaluate, can_be_cancelled_watched_and_observed) {
    Simple s;
    const Inputs inputs{{"a", floats({1, 3}, {1, 2, 3})}, {"b", floats({1, 1}, {1})}};
    std::atomic<bool> cancel{false};
    size_t calls = 0, total = 0;
    std::vector<std::string> seen;
    EvaluateOptions options;
    options.cancel = &cancel;
    options.progress = [&](const Node&, size_t done, size_t all) {
        EXPECT_EQ(done, ++calls);
        total = all;
    };
    options.observe = [&](const Value& v, const Datum& d) {
        EXPECT_TRUE(d.is_tensor());
        seen.push_back(v.node()->op().name);
    };
    ASSERT_TRUE(evaluate(s.graph, inputs, options).ok());
    EXPECT_EQ(calls, 3u);
    EXPECT_EQ(total, 3u);
    EXPECT_EQ(seen, (std::vector<std::string>{"add", "relu", "mul"}));
    cancel = true;
    auto out = evaluate(s.graph, inputs, options);
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.error().code(), Code::E0410);
}

// if(c) { x + x } else { x * x }, where x is a value around the branches
TEST(evaluate, nested_graphs_see_the_values_around_them) {
    Graph g;
    Value* c = g.add_input("c", Type(DType::boolean, {}));
    Value* x = g.add_input("x", Type(DType::f32, {2}));
    Builder build(g);
    Value* y = build.op("relu", {x});
    GraphPtr then = g.nested("then"), otherwise = g.nested("otherwise");
    {
        Builder inner(*then);
        then->add_output(inner.add(y, y));
    }
    {
        Builder inner(*otherwise);
        otherwise->add_output(inner.mul(y, y));
    }
    Value* out = build.op("if", {c}, {{"then_branch", Attr(then)}, {"else_branch", Attr(otherwise)}});
    ASSERT_TRUE(build.status().ok()) << build.status().error().to_string();
    g.add_output(out);
    for (bool taken : {true, false}) {
        auto result = evaluate(g, {{"c", Datum(Tensor::scalar(taken))}, {"x", floats({2}, {3, -5})}});
        ASSERT_TRUE(result.ok()) << result.error().to_string();
        EXPECT_EQ(values((*result)[0]), (taken ? std::vector<float>{6, 0} : std::vector<float>{9, 0}));
    }
}

// Ifs within one another, deeper than any run may go.
TEST(evaluate, stops_where_graphs_nest_too_deeply) {
    Graph g;
    Value* c = g.add_input("c", Type(DType::boolean, {}));
    Value* x = g.add_input("x", Type(DType::f32, {2}));
    std::vector<GraphPtr> levels;
    Graph* at = &g;
    for (int i = 0; i < 120; ++i) {
        levels.push_back(at->nested("level"));
        at = levels.back().get();
    }
    levels.back()->add_output(Builder(*levels.back()).add(x, x));
    for (size_t i = levels.size(); i-- > 0;) {
        Graph& outer = i == 0 ? g : *levels[i - 1];
        GraphPtr otherwise = outer.nested("otherwise");
        otherwise->add_output(Builder(*otherwise).add(x, x));
        Builder build(outer);
        outer.add_output(build.op("if", {c}, {{"then_branch", Attr(levels[i])}, {"else_branch", Attr(otherwise)}}));
        ASSERT_TRUE(build.status().ok()) << build.status().error().to_string();
    }
    auto result = evaluate(g, {{"c", Datum(Tensor::scalar(true))}, {"x", floats({2}, {3, -5})}});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), Code::E0109);
}

TEST(evaluate, random_streams_follow_the_seed) {
    const OpDef* op = find_op("random_normal");
    ASSERT_TRUE(op);
    auto draw = [&](uint64_t seed) {
        auto out = evaluate_op(*op, {}, {{"shape", Attr(std::vector<int64_t>{8})}}, 1, {.seed = seed});
        EXPECT_TRUE(out.ok()) << out.error().to_string();
        return values((*out)[0]);
    };
    EXPECT_EQ(draw(1), draw(1));
    EXPECT_NE(draw(1), draw(2));
}

}  // namespace
}  // namespace tessera::evaluate_test
