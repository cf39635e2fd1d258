// pool and roi.
#include "ops/run_op.h"

namespace tessera::test::pool_test {
namespace {

using Ints = std::vector<int64_t>;

Tensor counting(Sizes sizes) {
    std::vector<float> values(size_t(*element_count(sizes)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i + 1);
    return floats(std::move(sizes), values);
}

AttrMap window(Ints kernel, Ints strides = {}, Ints pads = {}) {
    AttrMap attrs{{"kernel_shape", Attr(kernel)}};
    if (!strides.empty()) attrs["strides"] = strides;
    if (!pads.empty()) attrs["pads"] = pads;
    return attrs;
}

TEST(MaxPool, ValuesAndPositions) {
    auto out = run_op("max_pool", {floats({1, 2, 4}, {1, 3, 3, 0, -5, -7, -6, -8})}, window({2}, {2}), 2);
    expect_tensor(out[0], {1, 2, 2}, {3, 3, -5, -6});
    expect_tensor(out[1], {1, 2, 2}, {1, 2, 4, 6});  // the first of equals, counted over the whole tensor
}

TEST(MaxPool, PaddingNeverWins) {
    auto out = run_op("max_pool", {floats({1, 1, 3}, {-1, -float(kInf), float(kNan)})}, window({2}, {1}, {1, 1}), 2);
    expect_tensor(out[0], {1, 1, 4}, {-1, -1, kNan, kNan});
    expect_tensor(out[1], {1, 1, 4}, {0, 0, 2, 2});
    expect_tensor(run_op("max_pool", {typed(DType::i8, {1, 1, 2}, {-128, -3})}, window({2}, {1}, {1, 0}))[0], {1, 1, 2},
                  {-128, -3});
}

TEST(MaxPool, ColumnMajorPositions) {
    AttrMap attrs = window({2, 2});
    attrs["storage_order"] = int64_t{1};
    expect_tensor(run_op("max_pool", {counting({1, 1, 2, 3})}, attrs, 2)[1], {1, 1, 1, 2}, {3, 5});
}

TEST(MaxPool, CeilModeLeavesOutWindowsThatStartInThePadding) {
    AttrMap attrs = window({2}, {2}, {0, 1});
    attrs["ceil_mode"] = int64_t{1};
    expect_tensor(run_op("max_pool", {counting({1, 1, 4})}, attrs)[0], {1, 1, 2}, {2, 4});
    expect_tensor(run_op("max_pool", {counting({1, 1, 5})}, attrs)[0], {1, 1, 3}, {2, 4, 5});
}

// The quotient of what is missing and the stride is cut towards zero.
TEST(MaxPool, WindowsLargerThanTheInput) {
    Tensor row = floats({1, 1, 1, 4}, {-4, -3, -2, -1});
    expect_tensor(run_op("max_pool", {row}, window({2, 2}, {2, 2}))[0], {1, 1, 1, 2}, {-3, -1});
    expect_tensor(run_op("max_pool", {row}, window({4, 4}, {4, 4}))[0], {1, 1, 1, 1}, {-1});
    expect_tensor(run_op("max_pool", {row}, window({3, 3}, {2, 2}))[0], {1, 1, 0, 1}, {});
    expect_tensor(run_op("max_pool", {row}, window({2, 2}))[0], {1, 1, 0, 3}, {});
    EXPECT_EQ(error_of("max_pool", {row}, window({3, 3})), "E0210");
    auto out = run_op("max_pool", {floats({1, 1, 1}, {-4})}, window({2}, {2}), 2);
    expect_tensor(out[1], {1, 1, 1}, {0});
}

TEST(MaxPool, Errors) {
    EXPECT_EQ(error_of("max_pool", {counting({1, 1, 4})}, window({6})), "E0210");
    EXPECT_EQ(error_of("max_pool", {counting({1, 1, 4})}, window({0})), "E0212");
    EXPECT_EQ(error_of("max_pool", {counting({1, 1, 4})}, window({2, 2})), "E0210");
    EXPECT_EQ(error_of("max_pool", {counting({4})}, window({2})), "E0210");
    EXPECT_EQ(error_of("max_pool", {counting({1, 1, 4})}), "E0206");
}

TEST(AveragePool, CountsPaddingOrNot) {
    Tensor x = counting({1, 1, 3});
    AttrMap attrs = window({2}, {1}, {1, 1});
    expect_tensor(run_op("average_pool", {x}, attrs)[0], {1, 1, 4}, {1, 1.5, 2.5, 3});
    attrs["count_include_pad"] = int64_t{1};
    expect_tensor(run_op("average_pool", {x}, attrs)[0], {1, 1, 4}, {0.5, 1.5, 2.5, 1.5});
    AttrMap over = window({2}, {2});
    over["ceil_mode"] = int64_t{1};
    over["count_include_pad"] = int64_t{1};  // what lies beyond the padding does not count even so
    expect_tensor(run_op("average_pool", {x}, over)[0], {1, 1, 2}, {1.5, 3});
    AttrMap apart = window({2}, {}, {2, 0});
    apart["dilations"] = Ints{2};
    expect_tensor(run_op("average_pool", {x}, apart)[0], {1, 1, 3}, {1, 2, 2});
}

TEST(AveragePool, WindowsLargerThanTheInput) {
    Tensor row = counting({1, 1, 1, 4});
    for (int64_t with_padding : {0, 1}) {
        AttrMap attrs = window({4, 4}, {4, 4});
        attrs["count_include_pad"] = with_padding;
        expect_tensor(run_op("average_pool", {row}, attrs)[0], {1, 1, 1, 1}, {2.5});
        attrs = window({5, 5}, {3, 3}, {1, 1, 1, 1});
        attrs["count_include_pad"] = with_padding;
        expect_tensor(run_op("average_pool", {row}, attrs)[0], {1, 1, 1, 1}, {with_padding ? 10.0 / 15 : 2.5});
    }
}

TEST(LpPool, Norms) {
    Tensor x = floats({1, 1, 2, 2}, {3, -4, 0, 0});
    expect_tensor(run_op("lp_pool", {x}, window({1, 2}))[0], {1, 1, 2, 1}, {5, 0});
    AttrMap attrs = window({2, 2});
    for (auto [p, expected] : {std::pair(1, 7.0), {2, 5.0}, {3, std::cbrt(91.0)}}) {
        attrs["p"] = int64_t{p};
        expect_tensor(run_op("lp_pool", {x}, attrs)[0], {1, 1, 1, 1}, {expected});
        expect_tensor(run_op("global_lp_pool", {x}, {{"p", Attr(int64_t{p})}})[0], {1, 1, 1, 1}, {expected});
    }
    attrs["p"] = int64_t{0};
    EXPECT_EQ(error_of("lp_pool", {x}, attrs), "E0212");
}

TEST(GlobalPool, OverEveryPosition) {
    expect_tensor(run_op("global_average_pool", {counting({1, 2, 2, 2})})[0], {1, 2, 1, 1}, {2.5, 6.5});
    expect_tensor(run_op("global_max_pool", {counting({1, 2, 3})})[0], {1, 2, 1}, {3, 6});
    expect_tensor(run_op("global_average_pool", {floats({1, 1, 0}, {})})[0], {1, 1, 1}, {kNan});
    EXPECT_EQ(error_of("global_max_pool", {counting({3})}), "E0210");
}

TEST(MaxUnpool, PutsValuesBack) {
    Tensor x = floats({1, 1, 2}, {5, 6}), at = longs({1, 1, 2}, {1, 2});
    expect_tensor(run_op("max_unpool", {x, at}, window({2}, {2}))[0], {1, 1, 4}, {0, 5, 6, 0});
    expect_tensor(run_op("max_unpool", {x, at, longs({3}, {1, 1, 5})}, window({2}, {2}))[0], {1, 1, 5},
                  {0, 5, 6, 0, 0});
    EXPECT_EQ(error_of("max_unpool", {x, longs({1, 1, 2}, {1, 4})}, window({2}, {2})), "E0406");
    EXPECT_EQ(error_of("max_unpool", {x, longs({1, 2}, {1, 4})}, window({2}, {2})), "E0210");
}

TEST(Roi, MaxOverRoundedBins) {
    Tensor x = counting({1, 1, 4, 4});
    AttrMap attrs{{"pooled_shape", Attr(Ints{2, 2})}};
    expect_tensor(run_op("max_roi_pool", {x, floats({1, 5}, {0, 0, 0, 3, 3})}, attrs)[0], {1, 1, 2, 2}, {6, 8, 14, 16});
    EXPECT_EQ(error_of("max_roi_pool", {x, floats({1, 5}, {1, 0, 0, 3, 3})}, attrs), "E0406");
    EXPECT_EQ(error_of("max_roi_pool", {x, floats({1, 4}, {0, 0, 3, 3})}, attrs), "E0210");
}

TEST(Roi, AlignAveragesSamples) {
    Tensor x = counting({1, 1, 4, 4});
    AttrMap attrs{
        {"output_height", Attr(int64_t{1})}, {"output_width", Attr(int64_t{1})}, {"sampling_ratio", Attr(int64_t{2})}};
    expect_tensor(run_op("roi_align", {x, floats({1, 4}, {0, 0, 4, 4}), longs({1}, {0})}, attrs)[0], {1, 1, 1, 1},
                  {8.5});
    EXPECT_EQ(error_of("roi_align", {x, floats({1, 4}, {0, 0, 4, 4}), longs({1}, {-1})}, attrs), "E0406");
    EXPECT_EQ(error_of("roi_align", {x, floats({1, 4}, {0, 0, float(kInf), 4}), longs({1}, {0})}, attrs), "E0407");
    EXPECT_EQ(error_of("roi_align", {x, floats({1, 4}, {0, 0, 4, 4}), longs({2}, {0, 0})}, attrs), "E0210");
}

}  // namespace
}  // namespace tessera::test::pool_test
