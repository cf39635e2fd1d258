#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/memory.h"
#include "graph/graph.h"
#include "tessera/compile.h"

namespace tessera::executable_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMlp = R"(graph mlp(x: f32[N,24]) {
  const w: f32[24,40] = W
  const b: f32[40] = B
  h = matmul(x, w)
  a = add(h, b)
  r = relu(a)
  s = softmax(r, axis=1)
  m = reduce_mean(s, [0], keepdims=0)
  return r, s, m
})";

std::string numbers(int count, int modulus) {
    std::string text = "[";
    for (int i = 0; i < count; ++i) text += fmt::format("{}{}", i ? "," : "", double(i * 7 % modulus) / modulus - 0.4);
    return text + "]";
}

Model mlp() {
    std::string rows, text = kMlp;
    for (int i = 0; i < 24; ++i) rows += (i ? "," : "") + numbers(40, 31 + i);
    text.replace(text.find("= W"), 3, "= [" + rows + "]");
    text.replace(text.find("= B"), 3, "= " + numbers(40, 17));
    auto model = Model::parse(text);
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    return *model;
}

Executable compiled(const Model& model, const CompileOptions& options = {.cache = ""}) {
    auto executable = compile(model, options);
    EXPECT_TRUE(executable.ok()) << executable.error().to_string();
    return *executable;
}

void expect_as_evaluated(const Model& model, const Executable& executable, const NamedData& inputs) {
    auto want = model.run(inputs), got = executable.run(inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    ASSERT_EQ(got->size(), want->size());
    for (size_t i = 0; i < got->size(); ++i) {
        const Tensor &g = (*got)[i].tensor(), &w = (*want)[i].tensor();
        ASSERT_EQ(g.sizes(), w.sizes());
        for (int64_t k = 0; k < g.elements(); ++k) ASSERT_NEAR(g.real_at(k), w.real_at(k), 1e-4) << i << " " << k;
    }
}

TEST(Executable, NumbersOutOfRangeAreRefused) {
    EXPECT_EQ(compile(mlp(), {.threads = -3, .cache = ""}).error().message(),
              "threads: expected a number of at least 0, got -3");
    EXPECT_EQ(compile(mlp(), {.target = "tessel", .virtual_threads = 7, .cache = ""}).error().message(),
              "virtual_threads: expected 1 or 2, got 7");
}

TEST(Executable, OneCompilationServesEverySize) {
    Model model = mlp();
    Executable executable = compiled(model);
    for (int64_t n : {1, 2, 7, 64, 3, 129, 4, 5, 6, 8, 9, 12, 16, 1})
        expect_as_evaluated(model, executable, *model.random_inputs(uint64_t(n), {{"N", n}}));
    // Few rows have tiles of their own, behind a guard.
    size_t special = 0;
    for (const auto& [what, why] : executable.report().decisions)
        special += what.starts_with("specialise") && why.starts_with("yes");
    EXPECT_GE(special, 1u);
}

// Whoever gives a model away has the memory of its weights back: before they are packed the program alone holds them.
TEST(Executable, AModelThatIsGivenAwayGoesBeforeItsWeightsArePacked) {
    std::string rows;
    for (int i = 0; i < 64; ++i) rows += (i ? "," : "") + numbers(96, 31 + i);
    const std::string text =
        fmt::format("graph g(x: f32[3,64]) {{\n  const w: f32[64,96] = [{}]\n  y = matmul(x, w)\n  return y\n}}", rows);
    for (bool given_away : {true, false}) {
        auto parsed = Model::parse(text);
        ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
        std::optional<Model> model = std::move(*parsed);
        const NamedData inputs = *model->random_inputs(1);
        const std::vector<Datum> want = *model->run(inputs);
        const std::weak_ptr<const void> graph = model->loaded();
        const std::weak_ptr<const void> weights = model->graph().constants()[0]->tensor()->owner();
        ASSERT_FALSE(weights.expired());
        bool gone = false, has_weights = false;
        CompileOptions options{.cache = ""};
        options.progress = [&](std::string_view phase, size_t, size_t) {
            if (phase != "prepare weights") return;
            gone = graph.expired();
            has_weights = !weights.expired();
        };
        auto executable = given_away ? compile(std::move(*model), options) : compile(*model, options);
        ASSERT_TRUE(executable.ok()) << executable.error().to_string();
        EXPECT_EQ(gone, given_away);
        EXPECT_TRUE(has_weights);
        EXPECT_EQ(weights.expired(), given_away);
        auto got = executable->run(inputs);
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        for (int64_t i = 0; i < want[0].tensor().elements(); ++i)
            ASSERT_NEAR((*got)[0].tensor().real_at(i), want[0].tensor().real_at(i), 1e-4);
    }
}

// A product with zero is no zero where the other factor is not finite.
TEST(Executable, WeightsOfZeroKeepWhatIsNotFinite) {
    for (const char* zero : {"0.0", "-0.0"}) {
        std::string row = fmt::format("[{0},{0}]", zero);
        auto model = Model::parse(fmt::format(R"(graph g(x: f32[3,2]) {{
  const w: f32[4,2] = [{0},{0},{0},{0}]
  y = gemm(x, w, alpha=-1.0, transB=1)
  return y
}})",
                                              row));
        ASSERT_TRUE(model.ok()) << model.error().to_string();
        Tensor x = *Tensor::zeros(DType::f32, {3, 2});
        float* data = static_cast<float*>(x.mutable_data());
        data[2] = INFINITY;
        data[5] = NAN;
        auto got = compiled(*model).run({{"x", Datum(x)}});
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        const Tensor& y = (*got)[0].tensor();
        for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(std::isnan(y.real_at(i)), i >= 4) << zero << " " << i;
    }
}

TEST(Executable, WithoutRewritesOrFusion) {
    Model model = mlp();
    Executable executable = compiled(model, {.optimize = false, .fuse = false, .cache = ""});
    expect_as_evaluated(model, executable, *model.random_inputs(1, {{"N", 5}}));
    EXPECT_GE(executable.report().steps, 4u);
}

TEST(Executable, ManyThreadsShareOne) {
    Model model = mlp();
    Executable executable = compiled(model);
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 25; ++i) {
                const int64_t n = 1 + (t * 3 + i) % 6;
                expect_as_evaluated(model, executable, *model.random_inputs(uint64_t(t), {{"N", n}}));
            }
        });
    for (auto& t : threads) t.join();
}

// Added up one by one, these would be off by a thousandth.
TEST(Executable, LongSumsKeepTheirDigits) {
    auto model = Model::parse(R"(graph g(x: f32[1,8,112,112], a: f32[16,8192], b: f32[8192,16]) {
  m = global_average_pool(x)
  p = matmul(a, b)
  return m, p
})");
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    auto filled = [](std::vector<int64_t> sizes) {
        Tensor t = *Tensor::zeros(DType::f32, std::move(sizes));
        for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, 0.1);
        return Datum(t);
    };
    auto got =
        compiled(*model).run({{"x", filled({1, 8, 112, 112})}, {"a", filled({16, 8192})}, {"b", filled({8192, 16})}});
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    const double tenth = double(0.1f);
    EXPECT_NEAR((*got)[0].tensor().real_at(3) / tenth, 1, 2e-5);
    EXPECT_NEAR((*got)[1].tensor().real_at(5) / (8192 * tenth * tenth), 1, 5e-6);
}

TEST(Executable, StrictIsTheSameForEveryNumberOfThreads) {
    Model model = mlp();
    auto inputs = *model.random_inputs(3, {{"N", 100}});
    auto one = *compiled(model, {.threads = 1, .precision = "strict", .cache = ""}).run(inputs);
    auto all = *compiled(model, {.precision = "strict", .cache = ""}).run(inputs);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].tensor().same_bits(all[i].tensor())) << i;
}

TEST(Executable, AThousandRunsLeaveNothing) {
    Model model = mlp();
    Executable executable = compiled(model);
    auto inputs = *model.random_inputs(3, {{"N", 10}});
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(executable.run(inputs).ok());
    const int64_t before = memory_in_use();
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(executable.run(inputs).ok());
    EXPECT_EQ(memory_in_use(), before);
}

Model with_a_large_middle(const char* op) {
    auto model = Model::parse(fmt::format(R"(graph g(x: f32[N,4]) {{
  const w: f32[1,4,1024] = {}
  a = reshape(x, [-1, 4, 1])
  b = mul(a, w)
  c = {}(b, axis=1)
  d = softmax(c, axis=2)
  y = reduce_max(d, [1, 2], keepdims=0)
  return y
}})",
                                          [] {
                                              std::string rows;
                                              for (int i = 0; i < 4; ++i)
                                                  rows += (i ? "," : "") + numbers(1024, 31 + i);
                                              return "[[" + rows + "]]";
                                          }(),
                                          op));
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    return *model;
}

TEST(Executable, ThoseThatShareMemoryTakeTurnsInIt) {
    CompileOptions options{.threads = 1, .fuse = false, .cache = ""};
    options.memory = make_run_memory();
    const Model models[] = {with_a_large_middle("softmax"), with_a_large_middle("log_softmax")};
    std::vector<Executable> made;
    for (const Model& model : models) made.push_back(compiled(model, options));
    const int64_t arena = *made[1].arena_bytes({{"N", 100}});
    EXPECT_GT(arena, 100 * 1024 * 4);
    expect_as_evaluated(models[0], made[0], *models[0].random_inputs(1, {{"N", 100}}));
    const int64_t before = memory_in_use();
    for (int64_t n : {100, 3, 70})
        for (size_t i = 2; i-- > 0;) expect_as_evaluated(models[i], made[i], *models[i].random_inputs(2, {{"N", n}}));
    EXPECT_LT(memory_in_use(), before + arena / 2);
    made.erase(made.begin());
    expect_as_evaluated(models[1], made[0], *models[1].random_inputs(3, {{"N", 200}}));  // more than anyone took so far
}

TEST(Executable, ThoseThatShareMemoryMayRunAtTheSameTime) {
    CompileOptions options{.cache = ""};
    options.memory = make_run_memory();
    const Model models[] = {mlp(), with_a_large_middle("softmax")};
    const Executable made[] = {compiled(models[0], options), compiled(models[1], options)};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (size_t i = 0; i < 10; ++i) {
                const size_t k = (t + i) % 2;
                expect_as_evaluated(models[k], made[k], *models[k].random_inputs(t, {{"N", int64_t(1 + i % 4)}}));
            }
        });
    for (auto& t : threads) t.join();
}

TEST(Executable, WhatItTakes) {
    Executable executable = compiled(mlp());
    ASSERT_TRUE(executable.arena_bytes({{"N", 8}}));
    EXPECT_GE(*executable.arena_bytes({{"N", 800}}), *executable.arena_bytes({{"N", 8}}));
    EXPECT_GE(executable.weight_bytes(), 24 * 40 * 4);
    EXPECT_EQ(executable.inputs()[0].type, "f32[N,24]");
    EXPECT_EQ(executable.outputs().size(), 3u);
    EXPECT_FALSE(executable.report().phases.empty());
    EXPECT_EQ(executable.report().host_steps, 0u);
}

TEST(Executable, ChecksEachStepWhereWeightsAreKept) {
    Model model = mlp();
    auto inputs = *model.random_inputs(1, {{"N", 9}});
    EXPECT_EQ(compiled(model).check(inputs).error().code(), Code::E0501);
    Executable executable = compiled(model, {.keep_weights = true, .cache = ""});
    auto steps = executable.check(inputs);
    ASSERT_TRUE(steps.ok()) << steps.error().to_string();
    EXPECT_FALSE(steps->empty());
    for (const auto& [label, difference] : *steps) EXPECT_LT(difference, 1e-5) << label;
    EXPECT_TRUE(executable.emit("graph").ok());
}

TEST(Executable, EveryStageCanBeShown) {
    Executable executable = compiled(mlp());
    for (const char* stage : {"kernel", "llvm", "asm"}) {
        auto text = executable.emit(stage);
        ASSERT_TRUE(text.ok()) << stage;
        EXPECT_FALSE(text->empty());
    }
    EXPECT_EQ(executable.emit("graph").error().code(), Code::E0501);
    EXPECT_EQ(executable.emit("film").error().code(), Code::E0501);
}

TEST(Executable, NothingOfASizeThatTheRunTells) {
    auto model = Model::parse(
        "graph g(x: f32[4], c: f32[0,1,1]) { %i = non_zero(x) %f = cast(%i, to=1) %y = add(%f, c) return %y }");
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    auto none = Tensor::zeros(DType::f32, {0, 1, 1});
    expect_as_evaluated(*model, compiled(*model), {{"x", Tensor::of<float>({4}, {0, 1, 0, 2})}, {"c", *none}});
}

TEST(Executable, EndsOfSlicesWhoseSizeIsAMinimum) {
    auto model = Model::parse("graph g(x: f32[n,n]) { %a = relu(x) %y = slice(%a, [-2,-4], [4,99], [0,1]) return %y }");
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    Executable executable = compiled(*model);
    for (int64_t n = 0; n < 7; ++n) {
        std::vector<float> values(static_cast<size_t>(n * n));
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 5) - 1;
        expect_as_evaluated(*model, executable, {{"x", Tensor::of<float>({n, n}, values)}});
    }
}

TEST(Executable, AskedForWhatThereIsNot) {
    auto none = compile(mlp(), {.target = "abacus"});
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code(), Code::E0603);
    EXPECT_EQ(compile(mlp(), {.precision = "vague"}).error().code(), Code::E0501);
    EXPECT_EQ(compile(mlp(), {.cache = "/proc/tessera"}).error().code(), Code::E0605);
}

TEST(Executable, ForAnotherMachineItOnlyShowsItself) {
    auto foreign = compile(mlp(), {.target = "wasm32", .cache = ""});
    ASSERT_TRUE(foreign.ok()) << foreign.error().to_string();
    EXPECT_TRUE(foreign->emit("asm").ok());
    EXPECT_EQ(foreign->run({}).error().code(), Code::E0603);
}

TEST(Executable, TheCacheSparesCodeGeneration) {
    const fs::path folder = fs::temp_directory_path() / fmt::format("tessera-code-{}", getpid());
    fs::remove_all(folder);
    Model model = mlp();
    auto inputs = *model.random_inputs(1, {{"N", 9}});
    const CompileOptions options{.cache = folder.string()};
    EXPECT_FALSE(compiled(model, options).report().from_cache);
    Executable again = compiled(model, options);
    EXPECT_TRUE(again.report().from_cache);
    expect_as_evaluated(model, again, inputs);
    for (const auto& file : fs::directory_iterator(folder)) fs::resize_file(file.path(), 100);  // truncated
    Executable rebuilt = compiled(model, options);
    EXPECT_FALSE(rebuilt.report().from_cache);
    expect_as_evaluated(model, rebuilt, inputs);
    EXPECT_TRUE(compiled(model, options).report().from_cache);
    fs::remove_all(folder);
}

}  // namespace
}  // namespace tessera::executable_test
