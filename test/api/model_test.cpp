// The public API as a user sees it: one include, and the README's three lines.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "tessera/tessera.h"

namespace {

namespace fs = std::filesystem;
using tessera::Model;
using tessera::Tensor;

constexpr const char* kDouble = "graph g(x: f32[N,2]) -> (y) { return add(x, x) }";

struct TemporaryFile {
    explicit TemporaryFile(const char* name) : path((fs::temp_directory_path() / name).string()) {}
    ~TemporaryFile() { fs::remove(path); }
    std::string path;
};

TEST(Model, RunsAsTheReadmeShows) {
    TemporaryFile file("tessera-api-test.onnx");
    ASSERT_TRUE(Model::parse(kDouble)->save(file.path).ok());
    auto model = tessera::Model::load(file.path);
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    auto y = model->run({{"x", tessera::Tensor::of<float>({2, 2}, {1, 2, 3, 4})}});
    ASSERT_TRUE(y.ok()) << y.error().to_string();
    EXPECT_EQ((*y)[0].tensor(), Tensor::of<float>({2, 2}, {2, 4, 6, 8}));
}

TEST(Model, ShowsItsPortsWithSymbols) {
    auto model = Model::parse(kDouble);
    auto in = model->inputs();
    ASSERT_EQ(in.size(), 1u);
    EXPECT_EQ(in[0].type, "f32[N,2]");
    EXPECT_EQ(in[0].dims, (std::vector<std::string>{"N", "2"}));
    EXPECT_EQ(in[0].sizes, (std::vector<int64_t>{-1, 2}));
    EXPECT_EQ(model->outputs()[0].name, "y");
    EXPECT_EQ(model->summary().flops, "2*N");
}

TEST(Model, ErrorsAreValues) {
    auto missing = Model::load("/does/not/exist.onnx");
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().code(), tessera::Code::E0101);
    auto wrong = Model::parse(kDouble)->run({{"x", Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6})}});
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().code(), tessera::Code::E0405);
}

TEST(Model, ServesManyThreads) {
    auto model = Model::parse(kDouble);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int k = 0; k < 4; ++k)
        threads.emplace_back([&, k] {
            for (int i = 0; i < 50; ++i) {
                auto y = model->run({{"x", Tensor::of<float>({1, 2}, {float(k), float(i)})}});
                if (!y.ok() || !((*y)[0].tensor() == Tensor::of<float>({1, 2}, {2.f * k, 2.f * i}))) ++wrong;
            }
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
}

TEST(Model, RunsUnderLimits) {
    tessera::RunOptions options;
    options.max_work = 1;
    auto model = Model::parse(kDouble);
    auto stopped = model->run({{"x", Tensor::of<float>({2, 2}, {1, 2, 3, 4})}}, options);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code(), tessera::Code::E0408);
    std::atomic<bool> cancel{true};
    options = {};
    options.cancel = &cancel;
    EXPECT_EQ(model->run({{"x", Tensor::of<float>({1, 2}, {1, 2})}}, options).error().code(), tessera::Code::E0410);
}

TEST(Model, DrawsInputsOfTheSizesAskedFor) {
    auto inputs = Model::parse(kDouble)->random_inputs(1, {{"N", 5}});
    ASSERT_TRUE(inputs.ok());
    EXPECT_EQ(inputs->at("x").tensor().sizes(), (tessera::Sizes{5, 2}));
}

}  // namespace
