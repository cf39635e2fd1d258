// The public API as a user sees it: one include, and the README's three lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <thread>

#include "tessera/model_text.h"
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

// A Result that nobody asked says what went wrong before the program ends.
TEST(Model, ErrorsThatAreNotAskedForAbort) {
    EXPECT_DEATH((void)Model::load("/does/not/exist.onnx")->inputs(), "error E0101.*exist.onnx");
    EXPECT_DEATH((void)*Model::load("/does/not/exist.onnx"), "error E0101");
    EXPECT_DEATH(Model::parse(kDouble)->save("/does/not/exist.onnx").value(), "error E0105");
    EXPECT_DEATH((void)Model::parse(kDouble).error(), "holds a value");
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

// Weights that lie in memory need not be written into the text.
TEST(Model, TakesConstantsBesideItsText) {
    const char* text = "graph g(x: f32[N,2], w: f32[2,1]) -> (y) { return matmul(x, w) }";
    auto model = tessera::parse_with_constants(text, {{"w", Tensor::of<float>({2, 1}, {3, 4})}});
    ASSERT_TRUE(model.ok());
    ASSERT_EQ(model->inputs().size(), 1u);
    auto y = model->run({{"x", Tensor::of<float>({1, 2}, {10, 1})}});
    ASSERT_TRUE(y.ok());
    EXPECT_EQ(y->at(0).tensor().real_at(0), 34);
    EXPECT_EQ(tessera::parse_with_constants(text, {{"w", Tensor::of<float>({3, 1}, {3, 4, 5})}}).error().code(),
              tessera::Code::E0210);
}

// The passes before kernels are reached from outside: a look after each, and the graph where one of them ends.
TEST(Compile, ShowsTheGraphAfterEachPass) {
    auto model = Model::parse("graph g(x: f32[N,4]) -> (y) { return softmax(add(x, 0.0:f32)) }");
    ASSERT_TRUE(model.ok());
    std::vector<std::string> seen, named;
    for (const tessera::PassRun& p : tessera::compile_passes()) named.push_back(p.pass);
    tessera::CompileOptions options;
    options.after = [&](const std::string& pass, const Model& now, bool) {
        seen.push_back(pass);
        EXPECT_EQ(now.inputs().size(), 1u);
    };
    ASSERT_TRUE(tessera::compile(*model, options).ok());
    for (const std::string& pass : named) EXPECT_TRUE(std::count(seen.begin(), seen.end(), pass)) << pass;
    for (const std::string& pass : seen) EXPECT_TRUE(std::count(named.begin(), named.end(), pass)) << pass;

    auto folded = tessera::graph_after(*model, "cleanup"), written = tessera::graph_after(*model, "expand_composites");
    ASSERT_TRUE(folded.ok() && written.ok());
    EXPECT_NE(folded->to_text().find("softmax(x)"), std::string::npos) << folded->to_text();
    EXPECT_EQ(written->to_text().find("softmax("), std::string::npos) << written->to_text();
    EXPECT_NE(written->to_text().find("exp("), std::string::npos);
    EXPECT_EQ(tessera::graph_after(*model, "tidy").error().code(), tessera::Code::E0501);  // not of compiling
    EXPECT_EQ(tessera::graph_after(*model, "cleanup", {.optimize = false}).error().code(), tessera::Code::E0501);
}

// From another thread or from a callback; before it begins, or between its phases.
TEST(Compile, IsCancelled) {
    auto model = Model::demo("resnet50");
    ASSERT_TRUE(model.ok());
    for (const std::string at : {"", "rewrite", "lower", "generate code", "prepare weights"}) {
        std::atomic<bool> cancel = at.empty();
        std::vector<std::string> phases;
        tessera::CompileOptions options{.cache = ""};
        options.cancel = &cancel;
        options.progress = [&](std::string_view what, size_t, size_t) {
            phases.emplace_back(what);
            if (what == at) cancel = true;
        };
        auto made = tessera::compile(*model, options);
        if (at == "prepare weights") {  // nothing is left to stop
            EXPECT_TRUE(made.ok());
            continue;
        }
        ASSERT_FALSE(made.ok()) << at;
        EXPECT_EQ(made.error().code(), tessera::Code::E0410);
        EXPECT_EQ(phases.empty() ? "" : phases.back(), at);
    }
}

// Phases of a kernel that is no multiple of its stride have weights of zero, and zero times NaN is NaN.
TEST(Compile, ATransposedConvolutionKeepsNaNInItsWindow) {
    struct Case {
        std::string attrs;
        int64_t kernel = 3;
    };
    for (const auto& [attrs, kernel] :
         {Case{"strides=[2,2]"}, Case{"strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]"}, Case{"strides=[4,4]"},
          Case{"dilations=[2,2]"}, Case{"strides=[3,3]"}, Case{"strides=[2,2]", 13}}) {
        const std::string size = std::to_string(kernel);
        auto model = Model::parse("graph g(x: f32[1,2,5,5], w: f32[2,3," + size + "," + size +
                                  "]) -> (y) { return conv_transpose(x, w, " + attrs + ") }");
        ASSERT_TRUE(model.ok()) << model.error().to_string();
        auto inputs = model->random_inputs(1);
        ASSERT_TRUE(inputs.ok());
        Tensor x = *Tensor::filled(tessera::DType::f32, {1, 2, 5, 5}, 1);
        x.set_real(12, std::numeric_limits<double>::quiet_NaN());
        inputs->insert_or_assign("x", tessera::Datum(x));
        auto made = tessera::compile(*model, {.cache = ""});
        ASSERT_TRUE(made.ok());
        auto expected = model->run(*inputs), got = made->run(*inputs);
        ASSERT_TRUE(expected.ok() && got.ok());
        const Tensor &a = (*expected)[0].tensor(), &b = (*got)[0].tensor();
        ASSERT_EQ(a.sizes(), b.sizes());
        int64_t nans = 0;
        for (int64_t i = 0; i < a.elements(); ++i) {
            EXPECT_EQ(std::isnan(a.real_at(i)), std::isnan(b.real_at(i))) << attrs << " at " << i;
            nans += std::isnan(a.real_at(i));
        }
        EXPECT_EQ(nans, 3 * kernel * kernel);
    }
}

}  // namespace
