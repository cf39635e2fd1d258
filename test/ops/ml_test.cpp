// ml: the domain ai.onnx.ml.
#include "ops/run_op.h"

namespace tessera::test::ml_test {
namespace {

using Ints = std::vector<int64_t>;

TEST(ArrayFeatureExtractor, FromTheLastDimension) {
    expect_tensor(run_op("array_feature_extractor", {floats({2, 3}, {1, 2, 3, 4, 5, 6}), longs({2}, {2, 0})})[0],
                  {2, 2}, {3, 1, 6, 4});
    expect_tensor(run_op("array_feature_extractor", {floats({3}, {1, 2, 3}), longs({1, 2}, {1, 1})})[0], {1, 2},
                  {2, 2});
    EXPECT_EQ(error_of("array_feature_extractor", {floats({3}, {1, 2, 3}), longs({1}, {3})}), "E0406");
}

TEST(Binarizer, AboveTheThreshold) {
    expect_tensor(run_op("binarizer", {floats({3}, {0.5f, 1, 2})}, {{"threshold", Attr(1.f)}})[0], {3}, {0, 0, 1});
}

TEST(LabelEncoder, LaterKeysWin) {
    AttrMap attrs{{"keys_strings", Attr(std::vector<std::string>{"a", "b", "a"})},
                  {"values_int64s", Attr(Ints{1, 2, 3})}};
    expect_tensor(run_op("label_encoder", {Tensor::strings({3}, {"a", "b", "c"})}, attrs)[0], {3}, {3, 2, -1});
    AttrMap back{{"keys_floats", Attr(std::vector<float>{0.5f, float(kNan)})},
                 {"values_strings", Attr(std::vector<std::string>{"half", "none"})}};
    Tensor y = run_op("label_encoder", {floats({3}, {float(kNan), 0.5f, 1})}, back)[0];
    EXPECT_EQ(y.as_strings(), (std::vector<std::string>{"none", "half", "_Unused"}));
    EXPECT_EQ(error_of("label_encoder", {longs({1}, {1})}, back), "E0208");
    back["values_strings"] = std::vector<std::string>{"half"};
    EXPECT_EQ(error_of("label_encoder", {floats({1}, {1})}, back), "E0212");
}

AttrMap stump(int64_t mode) {
    return {{"n_targets", Attr(int64_t{2})},
            {"tree_roots", Attr(Ints{0})},
            {"nodes_featureids", Attr(Ints{0})},
            {"nodes_modes", Attr(bytes({1}, {uint8_t(mode)}))},
            {"nodes_splits", Attr(floats({1}, {1}))},
            {"nodes_truenodeids", Attr(Ints{0})},
            {"nodes_trueleafs", Attr(Ints{1})},
            {"nodes_falsenodeids", Attr(Ints{1})},
            {"nodes_falseleafs", Attr(Ints{1})},
            {"leaf_targetids", Attr(Ints{0, 1})},
            {"leaf_weights", Attr(floats({2}, {5, 7}))}};
}

TEST(TreeEnsemble, ComparesAndAddsUp) {
    Tensor x = floats({3, 1}, {0, 1, float(kNan)});
    expect_tensor(run_op("tree_ensemble", {x}, stump(0))[0], {3, 2}, {5, 0, 5, 0, 0, 7});
    expect_tensor(run_op("tree_ensemble", {x}, stump(3))[0], {3, 2}, {0, 7, 0, 7, 0, 7});
    AttrMap twice = stump(1);
    twice["tree_roots"] = Ints{0, 0};
    twice["nodes_missing_value_tracks_true"] = Ints{1};
    expect_tensor(run_op("tree_ensemble", {x}, twice)[0], {3, 2}, {10, 0, 0, 14, 10, 0});
    twice["aggregate_function"] = int64_t{0};
    twice["post_transform"] = int64_t{2};
    Tensor y = run_op("tree_ensemble", {x}, twice)[0];
    EXPECT_NEAR(y.real_at(0), 1 / (1 + std::exp(-5.0)), 1e-6);
}

TEST(TreeEnsemble, Errors) {
    Tensor x = floats({1, 1}, {0});
    AttrMap circle = stump(0), far = stump(0), feature = stump(0), sets = stump(6);
    circle["nodes_trueleafs"] = Ints{0};
    EXPECT_EQ(error_of("tree_ensemble", {x}, circle), "E0212");
    far["nodes_falsenodeids"] = Ints{2};
    EXPECT_EQ(error_of("tree_ensemble", {x}, far), "E0212");
    feature["nodes_featureids"] = Ints{1};
    EXPECT_EQ(error_of("tree_ensemble", {x}, feature), "E0212");
    EXPECT_EQ(error_of("tree_ensemble", {x}, sets), "E0212");
    EXPECT_EQ(error_of("tree_ensemble", {x}, stump(7)), "E0212");
}

}  // namespace
}  // namespace tessera::test::ml_test
