// Measured costs and their file, timed candidates, and the search of a model from the outside.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "graph/builder.h"
#include "runtime/devices/cpu_device.h"
#include "tessera/memory.h"
#include "tessera/search.h"
#include "tune/measured_cost.h"
#include "tune/time_candidates.h"

namespace tessera {
namespace {

class Folder {
  public:
    Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("tessera_tune_test_{}", getpid())) {
        std::filesystem::remove_all(path_);
        std::filesystem::create_directories(path_);
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    std::string string() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};

Tensor ramp(const Sizes& sizes) {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    std::vector<float> v;
    for (int64_t i = 0; i < n; ++i) v.push_back(float(i % 17) / 17 - 0.5f);
    return Tensor::of<float>(sizes, v);
}

// Five rows through one matrix, one after the other.
std::shared_ptr<Graph> rows(int64_t width) {
    auto graph = std::make_shared<Graph>("rows");
    Builder b(*graph);
    Value* w = b.constant(ramp({width, width}));
    for (int i = 0; i < 5; ++i) {
        Value* x = graph->add_input(fmt::format("x{}", i), TensorType{DType::f32, Shape{1, width}});
        graph->add_output(b.op("tanh", {b.matmul(x, w)}), fmt::format("y{}", i));
    }
    EXPECT_TRUE(b.status().ok());
    return graph;
}

TEST(MeasuredCost, TimesAProductOnceAndKeepsIt) {
    Folder folder;
    auto graph = rows(96);
    const Node& product = *graph->nodes()[0];
    ASSERT_EQ(product.op().name, "matmul");
    double first = 0;
    {
        auto cost = MeasuredCost::open({.cache = folder.string(), .least = 0});
        ASSERT_TRUE(cost.ok()) << cost.error().to_string();
        first = (*cost)->node(product);
        EXPECT_GT(first, 0);
        EXPECT_EQ((*cost)->node(*graph->nodes()[2]), first);  // of the same sizes
        EXPECT_EQ((*cost)->measured(), 1u);
    }
    auto again = MeasuredCost::open({.cache = folder.string(), .least = 0});
    ASSERT_TRUE(again.ok());
    EXPECT_NEAR((*again)->node(product), first, 1e-6 * first);
    EXPECT_EQ((*again)->measured(), 0u);
}

// What code for one precision takes says nothing of another's.
TEST(MeasuredCost, PrecisionsAreKeptApart) {
    Folder folder;
    auto graph = rows(32);
    for (Precision precision : {Precision::Default, Precision::Strict, Precision::Default}) {
        const bool first = std::filesystem::is_empty(folder.string());
        const auto files = std::distance(std::filesystem::directory_iterator(folder.string()), {});
        auto cost = MeasuredCost::open({.cache = folder.string(), .precision = precision, .least = 0});
        ASSERT_TRUE(cost.ok()) << cost.error().to_string();
        EXPECT_GT((*cost)->node(*graph->nodes()[0]), 0);
        EXPECT_EQ((*cost)->measured(), first || precision == Precision::Strict ? 1u : 0u);
        (*cost)->save();
        EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.string()), {}),
                  first || precision == Precision::Strict ? files + 1 : files);
    }
}

TEST(MeasuredCost, ADamagedFileIsMeasuredAnew) {
    Folder folder;
    auto graph = rows(32);
    { (void)(*MeasuredCost::open({.cache = folder.string(), .least = 0}))->node(*graph->nodes()[0]); }
    for (const auto& entry : std::filesystem::directory_iterator(folder.string()))
        std::ofstream(entry.path()) << "no number\tmatmul\n-1\tx\n\t\n\0\xff";
    auto cost = MeasuredCost::open({.cache = folder.string(), .least = 0});
    ASSERT_TRUE(cost.ok());
    EXPECT_GT((*cost)->node(*graph->nodes()[0]), 0);
    EXPECT_EQ((*cost)->measured(), 1u);
}

TEST(MeasuredCost, WhatTakesTooMuchMemoryIsTakenToBeSlow) {
    auto graph = rows(96);
    const Node& product = *graph->nodes()[0];
    auto cost = MeasuredCost::open({.cache = "", .least = 0, .most_bytes = 1000});
    ASSERT_TRUE(cost.ok());
    EXPECT_GT((*cost)->node(product), 2 * estimated_cost()->node(product));
    EXPECT_EQ((*cost)->measured(), 0u);
    auto enough = MeasuredCost::open({.cache = "", .least = 0});
    ASSERT_TRUE(enough.ok());
    EXPECT_GT((*enough)->node(product), 0);
    EXPECT_EQ((*enough)->measured(), 1u);
}

TEST(MeasuredCost, SizesThatAreNotKnownAreEstimated) {
    Graph graph("g");
    Builder b(graph);
    Value* x = graph.add_input("x", TensorType{DType::f32, Shape{symbol("n"), 64}});
    graph.add_output(b.matmul(x, b.constant(ramp({64, 64}))), "y");
    auto cost = MeasuredCost::open({.cache = "", .least = 0});
    ASSERT_TRUE(cost.ok());
    EXPECT_GT((*cost)->node(*graph.nodes()[0]), 0);
}

TEST(TimeCandidates, WhatComputesSomethingElseIsNotTaken) {
    auto model = [](size_t i) {
        return Model::parse(
            fmt::format("graph g(x: f32[64,64]) {{\n  y = {}\n  return y\n}}", i == 0 ? "exp(x)" : "relu(x)"));
    };
    auto timed = time_candidates(2, model, {.least_gain = -1});
    ASSERT_TRUE(timed.ok()) << timed.error().to_string();
    EXPECT_EQ(timed->fastest, 0u);
    EXPECT_GT(timed->difference[1], 0.01);
    EXPECT_EQ(timed->seconds[1], 0);
}

// What is fused costs as one kernel; the same kernel is timed once, whatever graph it is of.
TEST(MeasuredCost, CostsFusedGroups) {
    Folder folder;
    auto graph = rows(96);
    double first = 0;
    size_t kernels = 0;
    {
        auto cost = MeasuredCost::open({.cache = folder.string()});
        ASSERT_TRUE(cost.ok()) << cost.error().to_string();
        auto groups = (*cost)->groups(*graph);
        ASSERT_TRUE(groups);
        first = *groups;
        kernels = (*cost)->measured();
        EXPECT_GT(first, 0);
        EXPECT_GE(kernels, 1u);
        EXPECT_LT(kernels, 5u);  // of five products with what follows them
        EXPECT_EQ((*cost)->groups(*rows(96)), groups);
        EXPECT_EQ((*cost)->measured(), kernels);
    }
    auto again = MeasuredCost::open({.cache = folder.string()});
    ASSERT_TRUE(again.ok());
    EXPECT_NEAR(*(*again)->groups(*graph), first, 1e-6 * first);
    EXPECT_EQ((*again)->measured(), 0u);
    auto alone = MeasuredCost::open({.cache = folder.string(), .fused = false});
    ASSERT_TRUE(alone.ok());
    EXPECT_FALSE((*alone)->groups(*graph));
}

// A convolution between others, in one class with itself in tiles.
TEST(MeasuredCost, MeasuresWhatItIsToldToExpect) {
    Graph graph("g");
    Builder b(graph);
    Value* x = graph.add_input("x", TensorType{DType::f32, Shape{1, 8, 13, 9}});
    Value* w = b.constant(ramp({8, 8, 3, 3}));
    Value* y = b.op("conv", {x, w});
    Value* z = b.op("conv", {x, w}, {{"tiles", Attr(std::vector<int64_t>{2, 2})}});
    graph.add_output(y, "y");
    graph.add_output(z, "z");
    ASSERT_TRUE(b.status().ok());
    auto cost = MeasuredCost::open({.cache = "", .least = 0});
    ASSERT_TRUE(cost.ok());
    (*cost)->expect({{y->node(), z->node()}});
    const size_t measured = (*cost)->measured();
    EXPECT_GE(measured, 2u);
    EXPECT_GT((*cost)->node(*y->node()), 0);
    EXPECT_GT((*cost)->node(*z->node()), 0);
    EXPECT_EQ((*cost)->measured(), measured);
    auto late = MeasuredCost::open({.cache = "", .least = 0, .budget = -1});
    ASSERT_TRUE(late.ok());
    (*late)->expect({{y->node(), z->node()}});
    EXPECT_EQ((*late)->measured(), 0u);
    EXPECT_GT((*late)->node(*y->node()), 0);
    auto stopped = MeasuredCost::open({.cache = "", .least = 0});
    ASSERT_TRUE(stopped.ok());
    (*stopped)->allow(Deadline::in(-1), Deadline::in(-1));
    (*stopped)->expect({{y->node(), z->node()}});
    EXPECT_GT((*stopped)->node(*y->node()), 0);
    EXPECT_GT((*stopped)->groups(graph).value_or(0), 0);
    EXPECT_EQ((*stopped)->measured(), 0u);
}

TEST(KernelTimer, TimesKernelsOfTheProcessor) {
    auto timer = KernelTimer::make(cpu_device());
    ASSERT_TRUE(timer.ok()) << timer.error().to_string();
    std::vector<double> seconds;
    for (int64_t n : {int64_t{1}, int64_t{1} << 16}) {
        auto graph = std::make_shared<Graph>("g");
        Builder b(*graph);
        Value* x = graph->add_input("x", TensorType{DType::f32, Shape{n, 64}});
        graph->add_output(b.op("relu", {x}), "y");
        LowerOptions lower;
        lower.machine = *describe_target("host");
        auto program = from_graph(graph, lower);
        ASSERT_TRUE(program.ok()) << program.error().to_string();
        auto module = compile_kernels(program->kernels, {});
        ASSERT_TRUE(module.ok()) << module.error().to_string();
        const auto& step = std::get<KernelStep>(program->steps[0]);
        auto call = call_of(*program, step);
        ASSERT_TRUE(call);
        EXPECT_EQ(bytes_of(*call), 2 * 4 * 64 * n);
        auto took = (*timer)->seconds((*module)->kernels()[step.kernel], *call, {.seconds = 0.001});
        ASSERT_TRUE(took.ok()) << took.error().to_string();
        seconds.push_back(*took);
    }
    EXPECT_GE(seconds[0], 0);
    EXPECT_GT(seconds[1], 0);
    EXPECT_EQ(most_timed_bytes(cpu_device()), kMostTimedBytes);
}

TEST(MeasuredCost, SaysThatThereIsNoGpu) {
    auto cost = MeasuredCost::open({.cache = "", .target = "cuda:9999"});
    ASSERT_FALSE(cost.ok());
    EXPECT_EQ(cost.error().code(), Code::E0701);
}

// After its deadline nothing is compiled, and what was not timed is not taken.
TEST(TimeCandidates, WhatADeadlineLeavesOutIsNotTaken) {
    Model model(rows(16));
    size_t made = 0;
    auto counted = [&](size_t i) -> Result<Model> {
        ++made;
        return i == 0 ? model : Model(rows(16));
    };
    auto none = time_candidates(3, counted, {.until = Deadline::in(-1), .least_gain = -1});
    ASSERT_TRUE(none.ok()) << none.error().to_string();
    EXPECT_EQ(made, 0u);
    EXPECT_EQ(none->fastest, 0u);
    EXPECT_EQ(none->seconds, (std::vector<double>{0, 0, 0}));
    // Making the first takes all the time that there is.
    const Deadline until = Deadline::in(0.5);
    auto slow = [&](size_t i) -> Result<Model> {
        while (i == 0 && !until.passed()) {
        }
        return counted(i);
    };
    auto first = time_candidates(3, slow, {.until = until, .least_gain = -1});
    ASSERT_TRUE(first.ok()) << first.error().to_string();
    EXPECT_EQ(made, 1u);
    EXPECT_EQ(first->fastest, 0u);
    EXPECT_EQ(first->seconds[1], 0);
}

// Candidates run in turns, so they do with the memory of one.
TEST(TimeCandidates, AllRunInTheSameMemory) {
    auto model = [](size_t i) {
        return Model::parse(fmt::format(R"(graph g(x: f32[8,128,128]) {{
  a = softmax(x, axis={})
  b = softmax(a, axis=1)
  c = softmax(b, axis=2)
  y = reduce_max(c, [1, 2], keepdims=0)
  return y
}})",
                                        i == 0 ? 2 : -1));
    };
    auto first = compile(*model(0), {.threads = 1, .cache = ""});
    ASSERT_TRUE(first.ok()) << first.error().to_string();
    const int64_t input = 8 * 128 * 128 * 4, arena = *first->arena_bytes(), limit = memory_limit();
    ASSERT_GT(arena, input);
    set_memory_limit(memory_in_use() + 2 * input + arena + arena / 2);
    auto timed = time_candidates(3, model, {});
    set_memory_limit(limit);
    ASSERT_TRUE(timed.ok()) << timed.error().to_string();
    EXPECT_GT(timed->seconds[2], 0);
}

// At the pace of those before.
TEST(TimeCandidates, WhatWouldEndTooLateIsNotBegun) {
    for (double running : {1000., 0.}) {
        int made = 0;
        auto model = [&](size_t) {
            ++made;
            return Model::parse("graph g(x: f32[8]) {\n  y = relu(x)\n  return y\n}");
        };
        auto timed = time_candidates(2, model, {.until = Deadline::in(900), .pace = {.running = running}});
        ASSERT_TRUE(timed.ok()) << timed.error().to_string();
        EXPECT_EQ(made, running > 0 ? 0 : 2);
        EXPECT_EQ(timed->pace.preparing > 0, running == 0);
    }
}

TEST(TimeCandidates, WhatTakesTooMuchMemoryIsNotRun) {
    auto model = [](size_t i) {
        const char* middle = i == 0 ? "  b = relu(x)\n" : "  a = softmax(x, axis=1)\n  b = softmax(a, axis=2)\n";
        return Model::parse(fmt::format(
            "graph g(x: f32[4,64,64]) {{\n{}  y = reduce_max(b, [1, 2], keepdims=0)\n  return y\n}}", middle));
    };
    for (int64_t most : {int64_t{1}, kMostTimedBytes}) {
        auto timed = time_candidates(2, model, {.most_bytes = most});
        ASSERT_TRUE(timed.ok()) << timed.error().to_string();
        EXPECT_EQ(timed->difference[1] > 0, most > 1);  // they do not compute the same, so it is known what ran
    }
    auto alike = time_candidates(2, [&](size_t) { return model(1); }, {.most_bytes = 1});  // no more than the first
    ASSERT_TRUE(alike.ok()) << alike.error().to_string();
    EXPECT_GT(alike->seconds[1], 0);
}

TEST(TimeCandidates, TheInputStaysWhereNothingIsFaster) {
    Model model(rows(16));
    auto same = [&](size_t) -> Result<Model> { return model; };
    auto timed = time_candidates(2, same, {.least_gain = 0.5});
    ASSERT_TRUE(timed.ok()) << timed.error().to_string();
    EXPECT_EQ(timed->fastest, 0u);
    EXPECT_GT(timed->seconds[1], 0);
}

TEST(SearchModel, GivesAModelThatComputesTheSame) {
    Folder folder;
    Model model(rows(64));
    for (const char* strategy : {"egraph", "backtrack"})
        for (const char* cost : {"measured", "estimate", "sum"}) {
            auto found = search(model, {.seconds = 20,
                                        .strategy = strategy,
                                        .cost = cost,
                                        .time_candidates = false,
                                        .budget = 30,
                                        .cache = folder.string()});
            ASSERT_TRUE(found.ok()) << found.error().to_string();
            EXPECT_EQ(found->report.strategy, strategy);
            ASSERT_GE(found->report.candidates.size(), 1u);
            auto inputs = model.random_inputs(1);
            auto x = model.run(*inputs), y = found->model.run(*inputs);
            ASSERT_TRUE(x.ok() && y.ok());
            ASSERT_EQ(x->size(), y->size());
            for (size_t i = 0; i < x->size(); ++i)
                for (int64_t k = 0; k < (*x)[i].tensor().elements(); ++k)
                    EXPECT_NEAR((*x)[i].tensor().real_at(k), (*y)[i].tensor().real_at(k), 1e-4);
        }
}

TEST(SearchModel, SaysWhatItDoesNotKnow) {
    Model model(rows(4));
    EXPECT_EQ(search(model, {.strategy = "guess"}).error().code(), Code::E0501);
    EXPECT_EQ(search(model, {.cost = "guess"}).error().code(), Code::E0501);
    EXPECT_EQ(search(model, {.precision = "guess"}).error().code(), Code::E0501);
    EXPECT_EQ(search(model, {.target = "guess"}).error().code(), Code::E0603);
    EXPECT_EQ(search(model, {.target = "wasm32"}).error().code(), Code::E0603);
    EXPECT_EQ(search(model, {.target = "cuda:9999"}).error().code(), Code::E0701);
}

}  // namespace
}  // namespace tessera
