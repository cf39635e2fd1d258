#include "ops/run_op.h"

namespace tessera::test::sort_test {
namespace {

Attr number(int64_t v) { return Attr(v); }

TEST(TopK, TiesAndNan) {
    Tensor x = floats({5}, {1, NAN, 3, 3, -INFINITY});
    auto most = run_op("top_k", {x, Tensor::ints({3})}, {}, 2);
    expect_tensor(most[0], {3}, {kNan, 3, 3});
    EXPECT_EQ(most[1].to_ints(), (std::vector<int64_t>{1, 2, 3}));
    auto least = run_op("top_k", {x, Tensor::ints({2})}, {{"largest", number(0)}}, 2);
    expect_tensor(least[0], {2}, {-kInf, 1});
    EXPECT_EQ(run_op("top_k", {x, Tensor::ints({0})}, {}, 2)[0].sizes(), (Sizes{0}));
    EXPECT_EQ(run_op("top_k", {floats({0, 2}, {}), Tensor::ints({2})}, {}, 2)[0].sizes(), (Sizes{0, 2}));
}

TEST(TopK, AlongAnyAxis) {
    auto y =
        run_op("top_k", {floats({2, 2, 2}, {1, 2, 3, 4, 8, 7, 6, 5}), Tensor::ints({1})}, {{"axis", number(1)}}, 2);
    expect_tensor(y[0], {2, 1, 2}, {3, 4, 8, 7});
    EXPECT_EQ(y[1].to_ints(), (std::vector<int64_t>{1, 1, 0, 0}));
}

TEST(TopK, Refuses) {
    Tensor x = floats({2}, {1, 2});
    EXPECT_EQ(error_of("top_k", {x, Tensor::ints({3})}, {}, 2), "E0210");
    EXPECT_EQ(error_of("top_k", {x, Tensor::ints({-1})}, {}, 2), "E0210");
    EXPECT_EQ(error_of("top_k", {x, Tensor::ints({1, 1})}, {}, 2), "E0210");
    EXPECT_EQ(error_of("top_k", {x, Tensor::ints({1})}, {{"axis", number(1)}}, 2), "E0212");
}

TEST(Unique, OrdersAndCounts) {
    Tensor x = Tensor::ints({2, 1, 1, 3, 4, 3});
    auto sorted = run_op("unique", {x}, {}, 4);
    EXPECT_EQ(sorted[0].to_ints(), (std::vector<int64_t>{1, 2, 3, 4}));
    EXPECT_EQ(sorted[1].to_ints(), (std::vector<int64_t>{1, 0, 3, 4}));
    EXPECT_EQ(sorted[2].to_ints(), (std::vector<int64_t>{1, 0, 0, 2, 3, 2}));
    EXPECT_EQ(sorted[3].to_ints(), (std::vector<int64_t>{2, 1, 2, 1}));
    auto found = run_op("unique", {x}, {{"sorted", number(0)}}, 4);
    EXPECT_EQ(found[0].to_ints(), (std::vector<int64_t>{2, 1, 3, 4}));
    EXPECT_EQ(found[2].to_ints(), (std::vector<int64_t>{0, 1, 1, 2, 3, 2}));
}

TEST(Unique, SlicesStringsNanAndNothing) {
    auto rows = run_op("unique", {floats({3, 2}, {1, 0, 1, 0, 0, 3})}, {{"axis", number(0)}}, 4);
    expect_tensor(rows[0], {2, 2}, {0, 3, 1, 0});
    EXPECT_EQ(run_op("unique", {Tensor::strings({3}, {"b", "a", "b"})})[0].as_strings(),
              (std::vector<std::string>{"a", "b"}));
    expect_tensor(run_op("unique", {floats({3}, {NAN, 1, NAN})})[0], {2}, {1, kNan});
    EXPECT_EQ(run_op("unique", {floats({0}, {})})[0].sizes(), (Sizes{0}));
    EXPECT_EQ(error_of("unique", {floats({1}, {1})}, {{"axis", number(1)}}), "E0212");
}

TEST(NonZero, PositionsOfEveryRank) {
    expect_tensor(run_op("non_zero", {floats({2, 2}, {1, 0, NAN, -0.f})})[0], {2, 2}, {0, 1, 0, 0});
    EXPECT_EQ(run_op("non_zero", {Tensor::scalar(3.f)})[0].sizes(), (Sizes{0, 1}));
    EXPECT_EQ(run_op("non_zero", {floats({0}, {})})[0].sizes(), (Sizes{1, 0}));
}

TEST(NonMaxSuppression, LimitsAndDegenerateBoxes) {
    Tensor boxes = floats({1, 3, 4}, {0, 0, 1, 1, 1, 1, 0, 0, 2, 2, 2, 2}), scores = floats({1, 1, 3}, {.5f, .9f, NAN});
    Tensor y = run_op("non_max_suppression", {boxes, scores, Tensor::ints({5}), Tensor::scalar(.5f)})[0];
    EXPECT_EQ(y.to_ints(), (std::vector<int64_t>{0, 0, 1, 0, 0, 2}));
    EXPECT_EQ(run_op("non_max_suppression", {boxes, scores})[0].sizes(), (Sizes{0, 3}));
    EXPECT_EQ(run_op("non_max_suppression", {boxes, scores, Tensor::ints({1})})[0].sizes(), (Sizes{1, 3}));
    EXPECT_EQ(error_of("non_max_suppression", {floats({1, 2}, {1, 2}), scores}), "E0210");
    EXPECT_EQ(error_of("non_max_suppression", {boxes, floats({1, 1, 2}, {1, 2})}), "E0210");
}

}  // namespace
}  // namespace tessera::test::sort_test
