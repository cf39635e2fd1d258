// image, grid and signal.
#include <numbers>

#include "ops/run_op.h"

namespace tessera::test::image_test {
namespace {

using Ints = std::vector<int64_t>;

Attr text(const char* s) { return Attr(std::string(s)); }

Tensor scaled(const Tensor& x, std::vector<float> scales, AttrMap attrs) {
    Tensor s = floats({int64_t(scales.size())}, scales);
    return run_op("resize", {x, std::nullopt, s}, attrs)[0];
}

TEST(Resize, NearestRoundsAsAsked) {
    Tensor x = floats({3}, {0, 1, 2});
    // Output i comes from i / 1.5: 0, 0.67, 1.33, 2.
    AttrMap attrs{{"coordinate_transformation_mode", text("asymmetric")}, {"nearest_mode", text("floor")}};
    expect_tensor(scaled(x, {1.5f}, attrs), {4}, {0, 0, 1, 2});
    attrs["nearest_mode"] = text("ceil");
    expect_tensor(scaled(x, {1.5f}, attrs), {4}, {0, 1, 2, 2});
    attrs["nearest_mode"] = text("round_prefer_floor");
    expect_tensor(scaled(floats({2}, {0, 1}), {2}, attrs), {4}, {0, 0, 1, 1});
    attrs["nearest_mode"] = text("round_prefer_ceil");
    expect_tensor(scaled(floats({2}, {0, 1}), {2}, attrs), {4}, {0, 1, 1, 1});
}

// Whole numbers find the same elements as the formulas of the standard.
TEST(Resize, NearestByWholeNumbers) {
    using Place = double (*)(double at, double scale, double width, double size);
    const std::pair<const char*, Place> places[] = {
        {"asymmetric", [](double at, double scale, double, double) { return at / scale; }},
        {"half_pixel", [](double at, double scale, double, double) { return (at + 0.5) / scale - 0.5; }},
        {"pytorch_half_pixel",
         [](double at, double scale, double width, double) { return width == 1 ? -0.5 : (at + 0.5) / scale - 0.5; }},
        {"tf_half_pixel_for_nn", [](double at, double scale, double, double) { return (at + 0.5) / scale; }},
        {"align_corners",
         [](double at, double, double width, double size) { return width == 1 ? 0 : at * (size - 1) / (width - 1); }}};
    const std::pair<const char*, double (*)(double)> roundings[] = {
        {"floor", [](double x) { return std::floor(x); }},
        {"ceil", [](double x) { return std::ceil(x); }},
        {"round_prefer_floor", [](double x) { return std::ceil(x - 0.5); }},
        {"round_prefer_ceil", [](double x) { return std::floor(x + 0.5); }}};
    for (const auto& [place, origin] : places)
        for (const auto& [rounding, nearest] : roundings)
            for (float scale : {0.25f, 0.3f, 0.5f, 0.625f, 0.75f, 1.5f, 1.7f, 2.0f, 2.75f, 3.0f, 7.0f})
                for (int64_t size : {1, 2, 3, 4, 5, 8, 29, 64}) {
                    std::vector<float> ramp, wanted;
                    for (int64_t i = 0; i < size; ++i) ramp.push_back(float(i));
                    const double width = double(scale) * double(size), last = double(size - 1);
                    for (double at = 0; at < std::floor(width); ++at)
                        wanted.push_back(float(std::clamp(nearest(origin(at, scale, width, double(size))), 0.0, last)));
                    SCOPED_TRACE(fmt::format("{} {} {} {}", place, rounding, scale, size));
                    AttrMap attrs{{"coordinate_transformation_mode", text(place)}, {"nearest_mode", text(rounding)}};
                    Tensor y = scaled(floats({size}, ramp), {scale}, attrs);
                    ASSERT_EQ(y.elements(), int64_t(wanted.size()));
                    for (int64_t i = 0; i < y.elements(); ++i) ASSERT_EQ(y.real_at(i), wanted[size_t(i)]) << i;
                }
}

TEST(Resize, MovesStrings) {
    Tensor y = scaled(Tensor::strings({2}, {"a", "b"}), {2}, {});
    EXPECT_EQ(y.as_strings(), (std::vector<std::string>{"a", "a", "b", "b"}));
    EXPECT_EQ(error_of("resize", {Tensor::strings({2}, {"a", "b"}), std::nullopt, floats({1}, {2})},
                       {{"mode", text("linear")}}),
              "E0208");
}

TEST(Resize, LinearAndItsCoordinates) {
    Tensor x = floats({2}, {0, 4});
    AttrMap attrs{{"mode", text("linear")}};
    expect_tensor(scaled(x, {2}, attrs), {4}, {0, 1, 3, 4});
    attrs["coordinate_transformation_mode"] = text("align_corners");
    expect_tensor(scaled(floats({2}, {0, 3}), {2}, attrs), {4}, {0, 1, 2, 3});
    attrs["coordinate_transformation_mode"] = text("asymmetric");
    expect_tensor(scaled(x, {2}, attrs), {4}, {0, 2, 4, 4});
    attrs["antialias"] = int64_t{1};
    attrs["coordinate_transformation_mode"] = text("half_pixel");
    expect_tensor(scaled(floats({4}, {0, 8, 8, 0}), {0.5f}, attrs), {2}, {4, 4}, 1);
}

TEST(Resize, CubicKeepsALine) {
    AttrMap attrs{{"mode", text("cubic")}, {"exclude_outside", Attr(int64_t{0})}};
    Tensor y = scaled(floats({8}, {0, 1, 2, 3, 4, 5, 6, 7}), {2}, attrs);
    for (int64_t i = 4; i < 12; ++i) EXPECT_NEAR(y.real_at(i), (double(i) + 0.5) / 2 - 0.5, 0.1);
}

TEST(Resize, SizesAxesAndAspect) {
    Tensor x = floats({1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
    AttrMap attrs{{"axes", Attr(Ints{2, 1})}};
    auto sized = [&](std::vector<int64_t> sizes) {
        return run_op("resize", {x, std::nullopt, std::nullopt, longs({int64_t(sizes.size())}, sizes)}, attrs)[0]
            .sizes();
    };
    EXPECT_EQ(sized({3, 5}), (Sizes{1, 5, 3}));
    attrs["keep_aspect_ratio_policy"] = text("not_larger");
    EXPECT_EQ(sized({8, 8}), (Sizes{1, 4, 8}));
    attrs["keep_aspect_ratio_policy"] = text("not_smaller");
    EXPECT_EQ(sized({8, 8}), (Sizes{1, 8, 16}));
}

TEST(Resize, ScaledSizesAreProductsOfF32) {
    Tensor x = floats({10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    EXPECT_EQ(run_op("resize", {x, std::nullopt, floats({1}, {0.7f})})[0].sizes(), (Sizes{7}));
    EXPECT_EQ(run_op("resize", {x, std::nullopt, floats({1}, {0.69f})})[0].sizes(), (Sizes{6}));
}

TEST(Resize, CropsAndExtrapolates) {
    Tensor x = floats({3}, {1, 2, 3});
    AttrMap attrs{{"mode", text("linear")},
                  {"coordinate_transformation_mode", text("tf_crop_and_resize")},
                  {"extrapolation_value", Attr(-1.f)}};
    expect_tensor(run_op("resize", {x, floats({2}, {0.5f, 1.5f}), std::nullopt, longs({1}, {3})}, attrs)[0], {3},
                  {2, 3, -1});
    EXPECT_EQ(error_of("resize", {x, std::nullopt, std::nullopt, longs({1}, {3})}, attrs), "E0207");
}

TEST(Resize, Errors) {
    Tensor x = floats({3}, {1, 2, 3});
    EXPECT_EQ(error_of("resize", {x}), "E0207");
    EXPECT_EQ(error_of("resize", {x, std::nullopt, floats({2}, {1, 1})}), "E0210");
    EXPECT_EQ(error_of("resize", {x, std::nullopt, floats({1}, {0})}), "E0212");
    EXPECT_EQ(error_of("resize", {x, std::nullopt, floats({1}, {float(kNan)})}), "E0212");
    EXPECT_EQ(error_of("resize", {x, std::nullopt, std::nullopt, longs({1}, {-3})}), "E0212");
    EXPECT_EQ(error_of("resize", {x, std::nullopt, floats({1}, {2})}, {{"mode", text("best")}}), "E0212");
    EXPECT_EQ(error_of("resize", {x, std::nullopt, floats({1}, {2})}, {{"axes", Attr(Ints{1})}}), "E0212");
}

TEST(GridSample, CornersAndPadding) {
    Tensor x = floats({1, 1, 1, 3}, {1, 2, 4});
    Tensor grid = floats({1, 1, 4, 2}, {-1, 0, 0.5f, 0, 2, 0, -2, 0});  // 0, 1.5, 3 and -1 along x
    AttrMap attrs{{"align_corners", Attr(int64_t{1})}};
    expect_tensor(run_op("grid_sample", {x, grid}, attrs)[0], {1, 1, 1, 4}, {1, 3, 0, 0});
    attrs["padding_mode"] = text("border");
    expect_tensor(run_op("grid_sample", {x, grid}, attrs)[0], {1, 1, 1, 4}, {1, 3, 4, 1});
    attrs["padding_mode"] = text("reflection");
    expect_tensor(run_op("grid_sample", {x, grid}, attrs)[0], {1, 1, 1, 4}, {1, 3, 2, 2});
    attrs["mode"] = text("nearest");
    expect_tensor(run_op("grid_sample", {x, grid}, attrs)[0], {1, 1, 1, 4}, {1, 4, 2, 2});
    EXPECT_EQ(error_of("grid_sample", {x, floats({1, 1, 1, 3}, {0, 0, 0})}), "E0210");
    EXPECT_EQ(error_of("grid_sample", {x, grid}, {{"mode", text("exact")}}), "E0212");
    EXPECT_EQ(run_op("grid_sample", {x, floats({1, 1, 1, 2}, {float(kNan), float(kInf)})})[0].elements(), 1);
}

TEST(AffineGrid, OfTheIdentity) {
    Tensor theta = floats({1, 2, 3}, {1, 0, 0, 0, 1, 0}), size = longs({4}, {1, 1, 1, 2});
    expect_tensor(run_op("affine_grid", {theta, size})[0], {1, 1, 2, 2}, {-0.5, 0, 0.5, 0});
    expect_tensor(run_op("affine_grid", {theta, size}, {{"align_corners", Attr(int64_t{1})}})[0], {1, 1, 2, 2},
                  {-1, 0, 1, 0});
    EXPECT_EQ(error_of("affine_grid", {theta, longs({5}, {1, 1, 1, 2, 3})}), "E0210");
    EXPECT_EQ(error_of("affine_grid", {theta, longs({4}, {1, 1, -1, 2})}), "E0212");
}

TEST(ImageDecoder, UncompressedOnly) {
    Tensor ppm = bytes({17}, {'P', '6', ' ', '2', ' ', '1', ' ', '2', '5', '5', '\n', 1, 2, 3, 4, 5, 6});
    expect_tensor(run_op("image_decoder", {ppm})[0], {1, 2, 3}, {1, 2, 3, 4, 5, 6});
    expect_tensor(run_op("image_decoder", {ppm}, {{"pixel_format", text("BGR")}})[0], {1, 2, 3}, {3, 2, 1, 6, 5, 4});
    Tensor cut = bytes({13}, {'P', '6', ' ', '2', ' ', '1', ' ', '2', '5', '5', '\n', 1, 2});
    EXPECT_EQ(run_op("image_decoder", {cut})[0].elements(), 0);
    EXPECT_EQ(error_of("image_decoder", {bytes({3}, {0xff, 0xd8, 0xff})}), "E0409");
}

TEST(Dft, ThereAndBack) {
    Tensor x = floats({1, 5, 1}, {1, -2, 3, 0, 5});
    Tensor full = run_op("dft", {x})[0], half = run_op("dft", {x}, {{"onesided", Attr(int64_t{1})}})[0];
    EXPECT_EQ(full.sizes(), (Sizes{1, 5, 2}));
    EXPECT_EQ(half.sizes(), (Sizes{1, 3, 2}));
    EXPECT_NEAR(full.real_at(0), 7, 1e-6);
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(half.real_at(i), full.real_at(i));
    expect_tensor(run_op("dft", {full}, {{"inverse", Attr(int64_t{1})}})[0], {1, 5, 2}, {1, 0, -2, 0, 3, 0, 0, 0, 5, 0},
                  1e-5);
    AttrMap back{{"inverse", Attr(int64_t{1})}, {"onesided", Attr(int64_t{1})}};
    expect_tensor(run_op("dft", {half, longs({}, {5})}, back)[0], {1, 5, 1}, {1, -2, 3, 0, 5}, 1e-5);
    Tensor padded = run_op("dft", {x, longs({}, {8}), longs({}, {1})})[0];
    EXPECT_EQ(padded.sizes(), (Sizes{1, 8, 2}));
    EXPECT_EQ(error_of("dft", {x, longs({}, {0})}), "E0212");
    EXPECT_EQ(error_of("dft", {x, std::nullopt, longs({}, {2})}), "E0212");
    EXPECT_EQ(error_of("dft", {floats({2, 3}, {1, 2, 3, 4, 5, 6})}), "E0210");
}

TEST(Stft, FramesOfOnes) {
    Tensor x = floats({1, 6, 1}, {1, 1, 1, 1, 1, 1});
    expect_tensor(run_op("stft", {x, longs({}, {2}), floats({2}, {1, 2})})[0], {1, 3, 2, 2},
                  {3, 0, -1, 0, 3, 0, -1, 0, 3, 0, -1, 0});
    EXPECT_EQ(error_of("stft", {x, longs({}, {0}), floats({2}, {1, 2})}), "E0212");
    EXPECT_EQ(error_of("stft", {x, longs({}, {1}), std::nullopt, longs({}, {7})}), "E0210");
}

TEST(Window, Shapes) {
    expect_tensor(run_op("hann_window", {longs({}, {4})})[0], {4}, {0, 0.5, 1, 0.5});
    expect_tensor(run_op("hann_window", {longs({}, {3})}, {{"periodic", Attr(int64_t{0})}})[0], {3}, {0, 1, 0});
    EXPECT_EQ(run_op("blackman_window", {longs({}, {0})})[0].elements(), 0);
    EXPECT_EQ(error_of("hamming_window", {longs({}, {-1})}), "E0212");
}

}  // namespace
}  // namespace tessera::test::image_test
