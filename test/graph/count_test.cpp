#include "graph/count.h"

#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/demo.h"

namespace tessera::count_test {
namespace {

class CountTest : public testing::Test {
  protected:
    Value* input(const char* name, Shape shape, DType dtype = DType::f32) {
        return graph.add_input(name, Type(dtype, std::move(shape)));
    }
    Cost cost(Value* v) {
        Status built = build.status();
        EXPECT_TRUE(built.ok()) << built.error().to_string();
        return v ? count(*v->node()) : Cost{};
    }
    Graph graph;
    Builder build{graph};
};

TEST_F(CountTest, a_multiply_add_is_two) {
    Cost c = cost(build.matmul(input("a", {symbol("M"), 8}), input("b", {8, 16})));
    EXPECT_EQ(to_string(c.flops), to_string(symbol("M") * (8 * 16 * 2)));
    EXPECT_EQ(to_string(c.bytes), to_string(symbol("M") * (4 * (8 + 16)) + 4 * 8 * 16));
    EXPECT_TRUE(c.complete);
}

TEST_F(CountTest, broadcasting_reads_the_small_side_once) {
    Cost c = cost(build.add(input("a", {4, 5}), input("b", {5})));
    EXPECT_TRUE(c.flops.is_int(20));
    EXPECT_TRUE(c.bytes.is_int(4 * (20 + 5 + 20)));
}

TEST_F(CountTest, padding_counts_nothing) {
    Value* x = input("x", {1, 1, 4, 4});
    Value* w = input("w", {1, 1, 3, 3});
    Cost c = cost(build.op("conv", {x, w}, {{"pads", Attr(std::vector<int64_t>{1, 1, 1, 1})}}));
    EXPECT_TRUE(c.flops.is_int(16 * 9 * 2)) << to_string(c.flops);
}

TEST_F(CountTest, an_expansion_is_the_sum_of_its_parts) {
    Cost c = cost(build.op("softmax", {input("x", {2, 10})}));
    EXPECT_TRUE(c.complete);
    EXPECT_TRUE(c.flops.is_int(20 * 5)) << to_string(c.flops);  // max, subtract, exp, sum, divide
    EXPECT_TRUE(c.bytes.is_int(2 * 20 * 4)) << to_string(c.bytes);
}

TEST_F(CountTest, a_shape_reads_no_elements) {
    Cost c = cost(build.op("shape", {input("x", {symbol("N"), 1000})}));
    EXPECT_TRUE(c.flops.is_int(0));
    EXPECT_TRUE(c.bytes.is_int(16)) << to_string(c.bytes);
}

TEST_F(CountTest, a_lookup_reads_what_it_takes) {
    Cost c = cost(build.op("gather", {input("table", {30000, 64}), input("at", {10}, DType::i64)}));
    EXPECT_TRUE(c.flops.is_int(0)) << to_string(c.flops);
    EXPECT_TRUE(c.bytes.is_int(2 * 10 * 64 * 4 + 10 * 8)) << to_string(c.bytes);
}

TEST_F(CountTest, unknown_axes_do_not_stop_the_count) {
    Cost c = cost(build.op("reduce_sum", {input("x", {4, 5}), input("axes", {1}, DType::i64)}));
    EXPECT_FALSE(c.complete);
}

TEST_F(CountTest, a_scan_runs_its_graph_for_each_slice) {
    Value* x = input("x", {symbol("S"), 1, 4});
    Value* w = input("w", {1, 12, 4});
    Value* r = input("r", {1, 12, 3});
    Value* y = build.op("lstm", {x, w, r}, {{"hidden_size", Attr(int64_t{3})}});
    Cost c = cost(y);
    EXPECT_TRUE(c.complete);
    auto at = [&](int64_t s) { return evaluate_int(c.flops, {{"S", s}}).value_or(0); };
    EXPECT_EQ(at(20) - at(10), at(30) - at(20));
    EXPECT_GT(at(11) - at(10), 2 * (12 * 4 + 12 * 3));
}

TEST(count, resnet50) {
    auto graph = resnet50(0);
    ASSERT_TRUE(graph.ok()) << graph.error().to_string();
    Cost c = count(**graph);
    EXPECT_TRUE(c.complete);
    auto flops = evaluate_int(c.flops, {{"N", 1}});
    ASSERT_TRUE(flops);
    EXPECT_NEAR(static_cast<double>(*flops), 8.2e9, 0.1e9);
    int64_t parameters = 0;
    for (const auto& v : (*graph)->constants()) parameters += v->tensor()->elements();
    EXPECT_NEAR(static_cast<double>(parameters), 25.6e6, 0.1e6);
}

TEST(count, sum_of_terms) {
    EXPECT_TRUE(sum_of({}).is_int(0));
    EXPECT_TRUE(sum_of({1, 2, 3, 4, 5}).is_int(15));
}

}  // namespace
}  // namespace tessera::count_test
