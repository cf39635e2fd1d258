// conv: values against plain loops, the transposed form as the adjoint, and the windows' corner cases.
#include <numeric>
#include <random>

#include "ops/run_op.h"

namespace tessera::test::conv_test {
namespace {

using Ints = std::vector<int64_t>;

Tensor random(Sizes sizes, unsigned seed) {
    std::mt19937 gen(seed);
    std::uniform_int_distribution<int> pick(-4, 4);
    std::vector<float> values(size_t(*element_count(sizes)));
    for (float& v : values) v = float(pick(gen));
    return floats(std::move(sizes), values);
}

double dot(const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.sizes(), b.sizes());
    auto x = reals(a), y = reals(b);
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

// A convolution in two spatial dimensions, as the definition says.
std::vector<double> plain_conv(const Tensor& x, const Tensor& w, Ints s, Ints d, Ints p, int64_t group) {
    int64_t oh = (x.size(2) + p[0] + p[2] - (w.size(2) - 1) * d[0] - 1) / s[0] + 1;
    int64_t ow = (x.size(3) + p[1] + p[3] - (w.size(3) - 1) * d[1] - 1) / s[1] + 1;
    std::vector<double> y;
    for (int64_t n = 0; n < x.size(0); ++n)
        for (int64_t m = 0; m < w.size(0); ++m)
            for (int64_t h = 0; h < oh; ++h)
                for (int64_t v = 0; v < ow; ++v) {
                    double total = 0;
                    for (int64_t c = 0; c < w.size(1); ++c)
                        for (int64_t i = 0; i < w.size(2); ++i)
                            for (int64_t j = 0; j < w.size(3); ++j) {
                                int64_t at_h = h * s[0] + i * d[0] - p[0], at_w = v * s[1] + j * d[1] - p[1];
                                if (at_h < 0 || at_w < 0 || at_h >= x.size(2) || at_w >= x.size(3)) continue;
                                int64_t channel = m / (w.size(0) / group) * w.size(1) + c;
                                total += x.real_at(((n * x.size(1) + channel) * x.size(2) + at_h) * x.size(3) + at_w) *
                                         w.real_at(((m * w.size(1) + c) * w.size(2) + i) * w.size(3) + j);
                            }
                    y.push_back(total);
                }
    return y;
}

TEST(Conv, MatchesPlainLoops) {
    struct Case {
        Sizes x, w;
        Ints strides, dilations, pads;
        int64_t group;
    };
    for (const Case& c : std::vector<Case>{
             {{2, 3, 7, 5}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 1},
             {{1, 4, 9, 8}, {6, 2, 3, 2}, {2, 3}, {1, 1}, {0, 2, 1, 0}, 2},
             {{1, 3, 8, 8}, {3, 1, 3, 3}, {1, 2}, {2, 1}, {2, 1, 2, 1}, 3},
             {{1, 1, 1, 1}, {1, 1, 1, 1}, {3, 3}, {1, 1}, {0, 0, 0, 0}, 1},
             {{0, 2, 4, 4}, {3, 2, 2, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 1},
         }) {
        Tensor x = random(c.x, 1), w = random(c.w, 2);
        Tensor y = run_op("conv", {x, w},
                          {{"strides", Attr(c.strides)},
                           {"dilations", Attr(c.dilations)},
                           {"pads", Attr(c.pads)},
                           {"group", Attr(c.group)}})[0];
        EXPECT_EQ(reals(y), plain_conv(x, w, c.strides, c.dilations, c.pads, c.group));
    }
}

TEST(Conv, OfOneAndThreeDimensions) {
    Tensor line = run_op("conv", {floats({1, 1, 5}, {1, 2, 3, 4, 5}), floats({1, 1, 2}, {1, 10}), floats({1}, {100})},
                         {{"strides", Attr(Ints{2})}, {"pads", Attr(Ints{1, 0})}})[0];
    expect_tensor(line, {1, 1, 3}, {110, 132, 154});
    Tensor cube = run_op("conv", {floats({1, 1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
                                  floats({1, 1, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1})})[0];
    expect_tensor(cube, {1, 1, 1, 1, 1}, {36});
}

TEST(Conv, AutoPad) {
    Tensor x = floats({1, 1, 4}, {1, 2, 3, 4}), w = floats({1, 1, 2}, {1, 10});
    auto conv = [&](const char* how) { return run_op("conv", {x, w}, {{"auto_pad", Attr(std::string(how))}})[0]; };
    expect_tensor(conv("SAME_UPPER"), {1, 1, 4}, {21, 32, 43, 4});
    expect_tensor(conv("SAME_LOWER"), {1, 1, 4}, {10, 21, 32, 43});
    expect_tensor(conv("VALID"), {1, 1, 3}, {21, 32, 43});
}

TEST(Conv, Errors) {
    Tensor x = random({1, 2, 4, 4}, 1), w = random({2, 2, 3, 3}, 2);
    EXPECT_EQ(error_of("conv", {x, random({2, 3, 3, 3}, 2)}), "E0210");    // channels
    EXPECT_EQ(error_of("conv", {x, random({2, 2, 5, 3}, 2)}), "E0210");    // window too large
    EXPECT_EQ(error_of("conv", {x, random({2, 2, 3}, 2)}), "E0210");       // rank
    EXPECT_EQ(error_of("conv", {x, w, floats({3}, {1, 2, 3})}), "E0210");  // bias
    EXPECT_EQ(error_of("conv", {x, w}, {{"kernel_shape", Attr(Ints{2, 3})}}), "E0210");
    EXPECT_EQ(error_of("conv", {x, w}, {{"strides", Attr(Ints{0, 1})}}), "E0212");
    EXPECT_EQ(error_of("conv", {x, w}, {{"strides", Attr(Ints{1})}}), "E0212");
    EXPECT_EQ(error_of("conv", {x, w}, {{"dilations", Attr(Ints{1, INT64_MAX})}}), "E0212");
    EXPECT_EQ(error_of("conv", {x, w}, {{"pads", Attr(Ints{-1, 0, 0, 0})}}), "E0212");
    EXPECT_EQ(error_of("conv", {x, w}, {{"group", Attr(int64_t{0})}}), "E0212");
    EXPECT_EQ(error_of("conv", {x, w}, {{"auto_pad", Attr(std::string("BOTH"))}}), "E0212");
}

// <conv(x, w), y> = <x, conv_transpose(y, w)>, for the same window.
TEST(ConvTranspose, IsTheAdjoint) {
    for (int64_t group : {1, 2})
        for (int64_t stride : {1, 2, 3}) {
            Ints strides{stride, stride}, dilations{2, 1}, pads{1, 0, 2, 1};
            Tensor x = random({2, 4, 11, 9}, 3), w = random({6, 4 / group, 2, 3}, 4);
            AttrMap attrs{{"strides", Attr(strides)},
                          {"dilations", Attr(dilations)},
                          {"pads", Attr(pads)},
                          {"group", Attr(group)}};
            Tensor cx = run_op("conv", {x, w}, attrs)[0], y = random(cx.sizes(), 5);
            Ints wanted{x.size(2), x.size(3)}, extra;
            for (size_t i : {0, 1}) {  // what the stride lost on the way down
                int64_t full = (cx.size(int64_t(i) + 2) - 1) * stride + (w.size(int64_t(i) + 2) - 1) * dilations[i] + 1;
                extra.push_back(wanted[i] - (full - pads[i] - pads[i + 2]));
            }
            attrs["output_padding"] = extra;
            Tensor back = run_op("conv_transpose", {y, w}, attrs)[0];
            EXPECT_DOUBLE_EQ(dot(cx, y), dot(x, back));
        }
}

TEST(ConvTranspose, OutputShapeAndBias) {
    Tensor x = floats({1, 1, 3}, {1, 2, 3}), w = floats({1, 1, 2}, {1, 10});
    expect_tensor(run_op("conv_transpose", {x, w, floats({1}, {100})})[0], {1, 1, 4}, {101, 112, 123, 130});
    AttrMap wider{{"strides", Attr(Ints{2})}, {"output_shape", Attr(Ints{7})}};
    expect_tensor(run_op("conv_transpose", {x, w}, wider)[0], {1, 1, 7}, {1, 10, 2, 20, 3, 30, 0});
    AttrMap narrower{{"strides", Attr(Ints{2})}, {"output_shape", Attr(Ints{5})}};
    expect_tensor(run_op("conv_transpose", {x, w}, narrower)[0], {1, 1, 5}, {10, 2, 20, 3, 30});
    EXPECT_EQ(error_of("conv_transpose", {x, w}, {{"pads", Attr(Ints{4, 4})}}), "E0210");
    EXPECT_EQ(error_of("conv_transpose", {x, random({2, 1, 2}, 1)}), "E0210");
}

TEST(DeformConv, WithoutOffsetsIsConv) {
    Tensor x = random({1, 4, 5, 5}, 1), w = random({2, 2, 3, 3}, 2), b = random({2}, 3);
    AttrMap attrs{{"group", Attr(int64_t{2})}, {"pads", Attr(Ints{1, 1, 1, 1})}};
    Tensor y = run_op("conv", {x, w, b}, attrs)[0];
    attrs["offset_group"] = int64_t{2};
    Tensor still = *Tensor::zeros(DType::f32, {1, 36, 5, 5}), mask = *Tensor::filled(DType::f32, {1, 18, 5, 5}, 1);
    EXPECT_EQ(reals(run_op("deform_conv", {x, w, still, b, mask}, attrs)[0]), reals(y));
    EXPECT_EQ(error_of("deform_conv", {x, w, *Tensor::zeros(DType::f32, {1, 18, 5, 5}), b}, attrs), "E0210");
}

TEST(Col2Im, PutsOverlappingBlocksTogether) {
    // 2x2 blocks over a 2x3 image: two of them, which share the middle column.
    Tensor x = floats({1, 4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    expect_tensor(run_op("col2im", {x, longs({2}, {2, 3}), longs({2}, {2, 2})})[0], {1, 1, 2, 3}, {1, 5, 4, 5, 13, 8});
    EXPECT_EQ(error_of("col2im", {x, longs({2}, {2, 4}), longs({2}, {2, 2})}), "E0210");
    EXPECT_EQ(error_of("col2im", {x, longs({2}, {2, -3}), longs({2}, {2, 2})}), "E0212");
    EXPECT_EQ(error_of("col2im", {x, longs({2}, {2, 3}), longs({2}, {0, 2})}), "E0212");
}

TEST(CausalConvWithState, ContinuesWhereItStopped) {
    Tensor w = floats({2, 1, 3}, {1, 2, 3, -1, 0, 1}), b = floats({2}, {0.5f, -0.5f});
    Tensor whole = random({1, 2, 7}, 1);
    auto part = [&](int64_t from, int64_t to) {
        std::vector<float> v;
        for (int64_t c : {0, 1})
            for (int64_t i = from; i < to; ++i) v.push_back(float(whole.real_at(c * 7 + i)));
        return floats({1, 2, to - from}, v);
    };
    auto all = run_op("causal_conv_with_state", {whole, w, b}, {}, 2);
    auto first = run_op("causal_conv_with_state", {part(0, 1), w, b}, {}, 2);
    auto rest = run_op("causal_conv_with_state", {part(1, 7), w, b, first[1]}, {}, 2);
    EXPECT_EQ(reals(rest[1]), reals(all[1]));
    for (int64_t c : {0, 1})
        for (int64_t i = 0; i < 7; ++i)
            EXPECT_EQ(all[0].real_at(c * 7 + i), i < 1 ? first[0].real_at(c) : rest[0].real_at(c * 6 + i - 1));
    EXPECT_EQ(error_of("causal_conv_with_state", {whole, w}, {{"activation", Attr(std::string("gelu"))}}, 2), "E0212");
}

}  // namespace
}  // namespace tessera::test::conv_test
