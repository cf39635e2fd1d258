// normalization, loss, training.
#include "ops/run_op.h"

namespace tessera::test::normalization_test {
namespace {

Tensor y(std::string_view op, const Given& in, const AttrMap& attrs = {}) { return run_op(op, in, attrs)[0]; }
AttrMap axis(int64_t v) { return {{"axis", Attr(v)}}; }

TEST(BatchNormalization, InferenceAndTraining) {
    Tensor x = floats({2, 2, 1}, {1, 10, 3, 30}), scale = floats({2}, {2, 1}), bias = floats({2}, {0, 5});
    Tensor mean = floats({2}, {1, 10}), variance = floats({2}, {4, 100});
    AttrMap exact = {{"epsilon", Attr(0.0f)}};
    expect_tensor(y("batch_normalization", {x, scale, bias, mean, variance}, exact), {2, 2, 1}, {0, 5, 2, 7});
    exact["training_mode"] = Attr(int64_t{1});
    exact["momentum"] = Attr(0.5f);
    auto out = run_op("batch_normalization", {x, scale, bias, mean, variance}, exact, 3);
    expect_tensor(out[0], {2, 2, 1}, {-2, 4, 2, 6});
    expect_tensor(out[1], {2}, {1.5, 15});
    expect_tensor(out[2], {2}, {2.5, 100});
    expect_tensor(y("batch_normalization",
                    {floats({2}, {1, 3}), floats({1}, {1}), floats({1}, {0}), floats({1}, {1}), floats({1}, {4})},
                    {{"epsilon", Attr(0.0f)}}),
                  {2}, {0, 1});
    EXPECT_EQ(error_of("batch_normalization", {x, floats({3}, {1, 2, 3}), bias, mean, variance}), "E0210");
    EXPECT_EQ(error_of("batch_normalization", {floats({}, {1}), scale, bias, mean, variance}), "E0210");
}

TEST(LayerNormalization, AllOutputs) {
    Tensor x = floats({2, 2}, {1, 3, 5, 5});
    auto out =
        run_op("layer_normalization", {x, floats({2}, {1, 2}), floats({2}, {0, 1})}, {{"epsilon", Attr(1.0f)}}, 3);
    double r = 1 / std::sqrt(2.0);
    expect_tensor(out[0], {2, 2}, {-r, 1 + 2 * r, 0, 1});
    expect_tensor(out[1], {2, 1}, {2, 5});
    expect_tensor(out[2], {2, 1}, {r, 1});
    EXPECT_EQ(error_of("layer_normalization", {x, floats({3}, {1, 2, 3})}), "E0210");
    EXPECT_EQ(error_of("layer_normalization", {x, floats({2}, {1, 2})}, axis(2)), "E0212");
    EXPECT_EQ(error_of("layer_normalization", {x, floats({2}, {1, 2})}, {{"stash_type", Attr(int64_t{7})}}), "E0212");
}

TEST(Normalization, GroupsAndInstances) {
    Tensor x = floats({1, 2, 2}, {1, 3, 10, 30}), one = floats({2}, {1, 1}), zero = floats({2}, {0, 0});
    AttrMap exact = {{"epsilon", Attr(0.0f)}};
    expect_tensor(y("instance_normalization", {x, one, zero}, exact), {1, 2, 2}, {-1, 1, -1, 1});
    exact["num_groups"] = Attr(int64_t{2});
    expect_tensor(y("group_normalization", {x, floats({2}, {1, 2}), floats({2}, {0, 1})}, exact), {1, 2, 2},
                  {-1, 1, -1, 3});
    exact["num_groups"] = Attr(int64_t{3});
    EXPECT_EQ(error_of("group_normalization", {x, one, zero}, exact), "E0210");
    exact["num_groups"] = Attr(int64_t{0});
    EXPECT_EQ(error_of("group_normalization", {x, one, zero}, exact), "E0212");
    EXPECT_EQ(error_of("instance_normalization", {floats({1, 2}, {1, 2}), one, zero}), "E0210");
}

TEST(Normalization, NormsOfZero) {
    Tensor x = floats({2, 2}, {3, -4, 0, 0});
    expect_tensor(y("lp_normalization", {x}), {2, 2}, {0.6, -0.8, 0, 0});
    expect_tensor(y("lp_normalization", {x}, {{"p", Attr(int64_t{1})}}), {2, 2}, {3 / 7.0, -4 / 7.0, 0, 0});
    EXPECT_EQ(error_of("lp_normalization", {x}, {{"p", Attr(int64_t{3})}}), "E0212");
    expect_tensor(y("rms_normalization", {floats({2}, {3, 4}), floats({}, {1})}, {{"epsilon", Attr(0.0f)}}), {2},
                  {3 / std::sqrt(12.5), 4 / std::sqrt(12.5)});
    expect_tensor(y("mean_variance_normalization", {floats({1, 1, 1, 2}, {1, 3})}), {1, 1, 1, 2}, {-1, 1});
    EXPECT_EQ(error_of("mean_variance_normalization", {x}), "E0212");
}

TEST(Lrn, WindowIsCutAtTheEdges) {
    AttrMap attrs = {{"size", Attr(int64_t{3})}, {"alpha", Attr(3.0f)}, {"beta", Attr(1.0f)}, {"bias", Attr(1.0f)}};
    Tensor x = floats({1, 3, 1}, {1, 2, 3});
    expect_tensor(y("lrn", {x}, attrs), {1, 3, 1}, {1 / 6.0, 2 / 15.0, 3 / 14.0});
    attrs["size"] = Attr(int64_t{1} << 29);  // far beyond the channels: all of them, and no longer
    expect_tensor(y("lrn", {x}, attrs), {1, 3, 1}, {1, 2, 3}, 1e-5);
    attrs["size"] = Attr(int64_t{0});
    EXPECT_EQ(error_of("lrn", {x}, attrs), "E0212");
}

TEST(Loss, ReductionsAndIgnored) {
    Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6}), labels = longs({2}, {2, 0}), weights = floats({3}, {1, 0, 3});
    auto with = [](const char* reduction) { return AttrMap{{"reduction", Attr(std::string(reduction))}}; };
    expect_tensor(y("negative_log_likelihood_loss", {x, labels, weights}, with("none")), {2}, {-9, -4});
    expect_tensor(y("negative_log_likelihood_loss", {x, labels, weights}, with("sum")), {}, {-13});
    expect_tensor(y("negative_log_likelihood_loss", {x, labels, weights}), {}, {-13 / 4.0});
    AttrMap ignoring = {{"ignore_index", Attr(int64_t{-7})}};
    expect_tensor(y("negative_log_likelihood_loss", {x, longs({2}, {-7, 0}), weights}, ignoring), {}, {-4});
    EXPECT_EQ(error_of("negative_log_likelihood_loss", {x, longs({2}, {3, 0})}), "E0406");
    EXPECT_EQ(error_of("negative_log_likelihood_loss", {x, longs({2}, {-1, 0})}), "E0406");
    EXPECT_EQ(error_of("negative_log_likelihood_loss", {x, longs({3}, {0, 0, 0})}), "E0210");
    EXPECT_EQ(error_of("negative_log_likelihood_loss", {x, labels, floats({2}, {1, 1})}), "E0210");
    EXPECT_EQ(error_of("negative_log_likelihood_loss", {x, labels}, with("product")), "E0212");
    auto out = run_op("softmax_cross_entropy_loss", {floats({1, 2}, {0, 0}), longs({1}, {1})}, {}, 2);
    expect_tensor(out[0], {}, {std::log(2.0)});
    expect_tensor(out[1], {1, 2}, {-std::log(2.0), -std::log(2.0)});
}

TEST(Training, StepsOfTwoTensors) {
    AttrMap attrs = {{"alpha", Attr(0.5f)},
                     {"beta", Attr(4.0f)},
                     {"mode", Attr(std::string("standard"))},
                     {"norm_coefficient", Attr(0.0f)}};
    Given in = {floats({}, {0.1f}), longs({}, {0}),        floats({1}, {1}), floats({2}, {2, 3}),
                floats({1}, {10}),  floats({2}, {20, 30}), floats({1}, {2}), floats({2}, {4, 6})};
    auto out = run_op("momentum", in, attrs, 4);
    expect_tensor(out[0], {1}, {1 - 1.1});
    expect_tensor(out[1], {2}, {2 - 2.2, 3 - 3.3});
    expect_tensor(out[2], {1}, {11});
    expect_tensor(out[3], {2}, {22, 33});
    EXPECT_EQ(error_of("momentum", in, attrs, 5), "E0207");
    in.pop_back();
    EXPECT_EQ(error_of("momentum", in, attrs, 2), "E0207");
    attrs["mode"] = Attr(std::string("fast"));
    EXPECT_EQ(error_of("momentum", in, attrs, 2), "E0212");
}

}  // namespace
}  // namespace tessera::test::normalization_test
