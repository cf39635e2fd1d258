// Training from C++: steps, memory in place, saving and resuming.
#include "tessera/training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "train/safetensors.h"

namespace tessera::training_test {
namespace {

constexpr const char* kModel = R"(graph g(x: f32[N,3]) -> (y) {
  const w: f32[3,2] = [[0.5,-0.25],[0.125,1],[-1,0.75]]
  const b: f32[2] = [0.25,-0.5]
  y = add(matmul(x, w), b)
  return y
})";

TrainingOptions options(Optimizer optimizer, std::string loss = "cross_entropy") {
    TrainingOptions o{.optimizer = std::move(optimizer)};
    o.loss.kind = std::move(loss);
    o.compile.threads = 1;
    o.compile.cache = "";
    return o;
}

NamedData batch() {
    return {{"x", Tensor::of<float>({4, 3}, {1, 2, 3, -1, 0.5, 0, 2, -2, 1, 0, 1, -1})},
            {"target", Tensor::of<int64_t>({4}, {0, 1, 1, 0})}};
}

Training make(const TrainingOptions& o) {
    auto model = Model::parse(kModel);
    EXPECT_TRUE(model.ok());
    auto training = Training::create(*model, o);
    EXPECT_TRUE(training.ok()) << (training.ok() ? "" : training.error().to_string());
    return std::move(*training);
}

TEST(training, losses_fall_and_parameters_stay_where_they_are) {
    Training training = make(options(Optimizer::adamw(0.05)));
    ASSERT_EQ(training.inputs().size(), 2u);
    EXPECT_EQ(training.inputs()[1].type, "i64[N]");
    const void* where = training.parameters()->at(0).second.data();
    double first = 0, last = 0;
    for (int i = 0; i < 60; ++i) {
        auto report = training.step(batch());
        ASSERT_TRUE(report.ok()) << report.error().to_string();
        (i == 0 ? first : last) = report->loss;
    }
    EXPECT_LT(last, first / 2);
    EXPECT_EQ(training.updates(), 60);
    EXPECT_EQ(training.parameters()->at(0).second.data(), where);
    auto evaluation = training.evaluate(batch());
    ASSERT_TRUE(evaluation.ok());
    auto trained = training.trained()->run({{"x", batch().at("x")}});
    ASSERT_TRUE(trained.ok());
    for (int64_t i = 0; i < 8; ++i)
        EXPECT_NEAR((*trained)[0].tensor().real_at(i), evaluation->outputs[0].tensor().real_at(i), 1e-5);
}

// Finite differences of the loss in f64.
TEST(training, gradients_are_those_of_the_loss) {
    for (const char* loss : {"cross_entropy", "mse", "l1", "bce_with_logits"}) {
        std::string text = kModel;
        for (size_t at; (at = text.find("f32")) != std::string::npos;) text.replace(at, 3, "f64");
        auto model = Model::parse(text);
        ASSERT_TRUE(model.ok());
        NamedData data = batch();
        Tensor x = *Tensor::zeros(DType::f64, {4, 3}), target = *Tensor::zeros(DType::f64, {4, 2});
        for (int64_t i = 0; i < 12; ++i) x.set_real(i, data.at("x").tensor().real_at(i));
        for (int64_t i = 0; i < 8; ++i) target.set_real(i, 0.1 * double(i) + 0.05);
        data["x"] = x;
        if (std::string_view(loss) != "cross_entropy") data["target"] = target;
        auto training = Training::create(*model, options(Optimizer::sgd(1), loss));
        ASSERT_TRUE(training.ok()) << training.error().to_string();
        NamedTensorList parameters = *training->parameters();
        Tensor w = parameters[0].second;
        for (int64_t i = 0; i < w.elements(); ++i) {
            const double before = w.real_at(i), h = 1e-5;
            std::vector<double> losses;
            for (double d : {h, -h}) {
                w.set_real(i, before + d);
                losses.push_back(training->evaluate(data)->loss);
            }
            w.set_real(i, before);
            const double slope = (losses[0] - losses[1]) / (2 * h);
            std::vector<double> all;
            for (const auto& [name, t] : parameters)
                for (int64_t k = 0; k < t.elements(); ++k) all.push_back(t.real_at(k));
            ASSERT_TRUE(training->step(data).ok());
            EXPECT_NEAR(before - w.real_at(i), slope, 1e-6) << loss << ", element " << i;
            size_t k = 0;
            for (auto [name, t] : parameters)
                for (int64_t e = 0; e < t.elements(); ++e) t.set_real(e, all[k++]);
        }
    }
}

TEST(training, is_resumed_to_the_bit) {
    const std::string path = testing::TempDir() + "/training_test.safetensors";
    Training one = make(options(Optimizer::adam(0.01))), other = make(options(Optimizer::adam(0.01)));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(one.step(batch()).ok());
    ASSERT_TRUE(one.save(path, {{"note", "\"quoted\" \xff"}}).ok());
    auto extra = other.load(path);
    ASSERT_TRUE(extra.ok()) << extra.error().to_string();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(one.step(batch())->loss, other.step(batch())->loss);
    EXPECT_EQ(make(options(Optimizer::sgd(0.1))).load(path).error().code(), Code::E0110);
    EXPECT_EQ(one.load(path + ".none").error().code(), Code::E0101);
    std::filesystem::remove(path);
}

TEST(training, bad_batches_are_named) {
    Training training = make(options(Optimizer::sgd(0.1)));
    auto code = [&](NamedData data) {
        auto report = training.step(data);
        return report.ok() ? Code::E0801 : report.error().code();
    };
    NamedData data = batch();
    data["target"] = Tensor::of<int64_t>({4}, {0, 1, 2, 0});
    EXPECT_EQ(code(data), Code::E0406);
    data["target"] = Tensor::of<float>({4}, {0, 1, 1, 0});
    EXPECT_EQ(code(data), Code::E0403);
    data.erase("target");
    EXPECT_EQ(code(data), Code::E0402);
    data = batch();
    data["z"] = Tensor::scalar(1.0f);
    EXPECT_EQ(code(data), Code::E0401);
    data = batch();
    data["x"] = Tensor::of<float>({1, 3}, {NAN, 1, 2});
    data["target"] = Tensor::of<int64_t>({1}, {0});
    EXPECT_EQ(code(data), Code::E0407);
    EXPECT_EQ(training.updates(), 0);
    EXPECT_TRUE(training.step(batch()).ok());
}

TEST(training, safetensors_are_read_back) {
    const std::string path = testing::TempDir() + "/tensors.safetensors";
    NamedTensors all{{{"a", Tensor::of<float>({2, 1}, {1, 2})},
                      {"none", *Tensor::zeros(DType::i64, {0, 3})},
                      {"b", Tensor::of<uint8_t>({3}, {1, 2, 3})},
                      {"c", Tensor::scalar(int64_t{-7})}},
                     {{"key", "value"}}};
    ASSERT_TRUE(write_safetensors(all, path).ok());
    auto found = read_safetensors(path);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_EQ(found->metadata, all.metadata);
    ASSERT_EQ(found->tensors.size(), all.tensors.size());
    for (size_t i = 0; i < all.tensors.size(); ++i) {
        EXPECT_EQ(found->tensors[i].first, all.tensors[i].first);
        EXPECT_EQ(found->tensors[i].second, all.tensors[i].second);
    }
    std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera::training_test
