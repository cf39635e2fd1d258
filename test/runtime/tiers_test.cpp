// Baseline code answers as optimized code does, gives way to it between runs, and stops compiling when nobody needs it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "api/background_compile.h"
#include "base/error.h"
#include "tessera/compile.h"

namespace tessera::tiers_test {
namespace {

namespace fs = std::filesystem;

// A folder of its own, that goes again.
struct Folder {
    fs::path path = fs::temp_directory_path() / ("tessera-tiers-" + std::to_string(getpid()));
    Folder() {
        fs::remove_all(path);
        fs::create_directories(path);
    }
    ~Folder() { fs::remove_all(path); }
};

Datum waves(Sizes sizes, double step = 1.3) {
    Tensor t = *Tensor::zeros(DType::f32, std::move(sizes));
    for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, std::sin(double(i) * step));
    return Datum(std::move(t));
}

// Convolutions of all kinds, products with weights either way round, rows, windows, transposes; sizes are dynamic.
Model network() {
    auto model = Model::parse(
        R"(graph net(x: f32[N,4,H,18], w1: f32[8,4,3,3], w2: f32[8,1,3,3], w3: f32[16,8,1,1], m: f32[16,33], v: f32[21,33]) {
  a = conv(x, w1, pads=[1,1,1,1])
  b = relu(a)
  c = conv(b, w2, pads=[1,1,1,1], strides=[2,2], group=8)
  d = conv(c, w3)
  e = max_pool(d, kernel_shape=[3,3], pads=[1,1,1,1])
  f = reduce_mean(e, [2,3])
  %s = shape(f, start=0, end=1)
  %k = concat(%s, [16], axis=0)
  g = reshape(f, %k)
  h = matmul(g, m)
  i = softmax(h)
  j = gemm(i, v, transB=1)
  o = sub(j, reduce_max(j, [1]))
  l = transpose(e, perm=[0,2,3,1])
  p = tanh(o)
  return p, l
})");
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    return *model;
}

NamedData inputs_of(int64_t batch, int64_t height) {
    return {{"x", waves({batch, 4, height, 18})}, {"w1", waves({8, 4, 3, 3}, 0.7)}, {"w2", waves({8, 1, 3, 3}, 0.9)},
            {"w3", waves({16, 8, 1, 1}, 1.1)},    {"m", waves({16, 33}, 0.3)},      {"v", waves({21, 33}, 0.5)}};
}

CompileOptions in_tier(const char* tier, const std::string& cache = "") {
    CompileOptions options;
    options.threads = 2;
    options.tier = tier;
    options.cache = cache;
    return options;
}

Executable compiled(const Model& model, const CompileOptions& options) {
    auto made = compile(model, options);
    EXPECT_TRUE(made.ok()) << made.error().to_string();
    return *made;
}

std::vector<Datum> evaluated(const Model& model, const NamedData& inputs) {
    auto want = model.run(inputs);
    EXPECT_TRUE(want.ok()) << want.error().to_string();
    return *want;
}

// The largest difference, or 1 where there are no results to compare.
double difference(const Result<std::vector<Datum>>& got, const std::vector<Datum>& want) {
    if (!got.ok() || got->size() != want.size()) return 1;
    double most = 0;
    for (size_t k = 0; k < want.size(); ++k) {
        const Tensor &a = (*got)[k].tensor(), &b = want[k].tensor();
        if (a.sizes() != b.sizes()) return 1;
        for (int64_t i = 0; i < b.elements(); ++i) most = std::max(most, std::abs(a.real_at(i) - b.real_at(i)));
    }
    return most;
}

constexpr double kTolerance = 1e-4;

TEST(Tiers, BaselineAnswersAsTheEvaluator) {
    const Model model = network();
    const Executable fast = compiled(model, in_tier("fast"));
    EXPECT_EQ(fast.report().tier, "fast");
    for (auto [batch, height] : {std::pair{1, 7}, {3, 16}, {2, 33}, {1, 64}}) {
        const NamedData inputs = inputs_of(batch, height);
        EXPECT_LE(difference(fast.run(inputs), evaluated(model, inputs)), kTolerance) << batch << " " << height;
    }
    EXPECT_TRUE(fast.wait().ok());
    EXPECT_EQ(fast.report().tier, "fast");
}

TEST(Tiers, EightThreadsRunWhileCodeIsReplaced) {
    const Model model = network();
    const NamedData inputs = inputs_of(2, 20);
    const std::vector<Datum> want = evaluated(model, inputs);
    const Executable tiers = compiled(model, in_tier("auto"));
    std::atomic<bool> replaced = false;
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([&, t] {
            std::vector<Datum> ordered;
            for (const Port& port : tiers.inputs()) ordered.push_back(inputs.at(port.name));
            for (int more = 4; more > 0; more -= replaced) {
                std::this_thread::sleep_for(std::chrono::milliseconds(t));  // the thread that compiles wants a core too
                wrong += difference(t % 2 ? tiers.run(inputs) : tiers.run_in_order(ordered), want) > kTolerance;
            }
        });
    EXPECT_TRUE(tiers.wait().ok());
    EXPECT_EQ(tiers.report().tier, "full");
    replaced = true;
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
    // What full code alone would give, bit for bit.
    EXPECT_EQ(difference(tiers.run(inputs), *compiled(model, in_tier("full")).run(inputs)), 0);
}

TEST(Tiers, ReadersSeeOneTierOrTheOther) {
    const Executable tiers = compiled(network(), in_tier("auto"));
    std::atomic<bool> replaced = false;
    std::thread reader([&] {
        while (!replaced) {
            EXPECT_TRUE(tiers.arena_bytes({{"N", 1}, {"H", 20}}).has_value());
            EXPECT_GE(tiers.weight_bytes(), 0);
            EXPECT_EQ(tiers.gpu(), kNoGpu);
            EXPECT_FALSE(tiers.report().tier.empty());
        }
    });
    EXPECT_TRUE(tiers.profile(inputs_of(1, 8), 1).ok());
    EXPECT_EQ(tiers.report().tier, "full");
    replaced = true;
    reader.join();
}

TEST(Tiers, DestroyedWhileItCompiles) {
    const Model model = network();
    for (int i = 0; i < 3; ++i) {
        Executable tiers = compiled(model, in_tier("auto"));
        if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20 * i));
    }
}

TEST(Tiers, TheCacheHoldsOptimizedCode) {
    const Folder folder;
    const Model model = network();
    const NamedData inputs = inputs_of(1, 9);
    Result<std::vector<Datum>> first = Error(Code::E0801, "not run");
    {
        const Executable tiers = compiled(model, in_tier("auto", folder.path));
        EXPECT_FALSE(tiers.report().from_cache);
        ASSERT_TRUE(tiers.wait().ok());
        first = tiers.run(inputs);
    }
    for (const char* tier : {"auto", "full"}) {
        const Executable again = compiled(model, in_tier(tier, folder.path));
        EXPECT_TRUE(again.report().from_cache) << tier;
        EXPECT_EQ(again.report().tier, "full");
        EXPECT_EQ(difference(again.run(inputs), *first), 0);
    }
    EXPECT_FALSE(compiled(model, in_tier("fast", folder.path)).report().from_cache);
    const Executable fast = compiled(model, in_tier("fast", folder.path));
    EXPECT_TRUE(fast.report().from_cache);
    EXPECT_EQ(fast.report().tier, "fast");
    EXPECT_LE(difference(fast.run(inputs), *first), kTolerance);
}

// The folder for optimized code goes while the baseline is compiled.
TEST(Tiers, BaselineStaysWhereOptimizedCodeFails) {
    const Folder folder;
    const fs::path cache = folder.path / "cache";
    CompileOptions options = in_tier("auto", cache);
    options.progress = [&](std::string_view what, size_t, size_t) {
        if (what != "generate code") return;
        fs::remove_all(cache);
        std::ofstream(cache) << "no folder";
    };
    const Model model = network();
    const Executable tiers = compiled(model, options);
    const Status waited = tiers.wait();
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code(), Code::E0605);
    EXPECT_EQ(tiers.report().tier, "fast");
    const NamedData inputs = inputs_of(2, 11);
    EXPECT_LE(difference(tiers.run(inputs), evaluated(model, inputs)), kTolerance);
    EXPECT_FALSE(tiers.save((folder.path / "saved").string()).ok());
}

TEST(Tiers, SavedAndLoaded) {
    const Folder folder;
    const Model model = network();
    const NamedData inputs = inputs_of(2, 8);
    for (const char* tier : {"auto", "fast"}) {
        const Executable made = compiled(model, in_tier(tier));
        const std::string path = folder.path / tier;
        const Status saved = made.save(path);
        ASSERT_TRUE(saved.ok()) << saved.error().to_string();
        auto loaded = Executable::load(path);
        ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
        EXPECT_EQ(loaded->report().tier, std::string_view(tier) == "fast" ? "fast" : "full");
        EXPECT_EQ(difference(loaded->run(inputs), *made.run(inputs)), 0);
    }
}

TEST(Tiers, UnknownTier) {
    auto made = compile(network(), in_tier("best"));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code(), Code::E0501);
}

TEST(BackgroundCompile, StopsWhenItIsDestroyed) {
    std::atomic<bool> ended = false;
    {
        auto compile = BackgroundCompile::start([&](const std::atomic<bool>& cancelled) -> Result<Executable> {
            while (!cancelled) std::this_thread::yield();
            ended = true;
            return Error(Code::E0410, "cancelled");
        });
        EXPECT_EQ(compile->ready(), nullptr);
    }
    EXPECT_TRUE(ended);
}

TEST(BackgroundCompile, FailuresAreReported) {
    auto fails = BackgroundCompile::start([](const auto&) -> Result<Executable> { return Error(Code::E0604, "no"); });
    EXPECT_EQ(fails->wait().error().code(), Code::E0604);
    EXPECT_EQ(fails->ready(), nullptr);
    auto throws = BackgroundCompile::start([](const auto&) -> Result<Executable> { throw std::bad_alloc(); });
    EXPECT_EQ(throws->wait().error().code(), Code::E0408);
    EXPECT_EQ(throws->ready(), nullptr);
}

#ifndef __SANITIZE_THREAD__  // it does not follow threads into a child
// The child has no thread that compiles: it starts one.
TEST(Tiers, ForkedWhileItCompiles) {
    const Model model = network();
    const NamedData inputs = inputs_of(1, 8);
    const std::vector<Datum> want = evaluated(model, inputs);
    const Executable tiers = compiled(model, in_tier("auto"));
    const pid_t child = fork();
    if (child == 0) {
        bool good = difference(tiers.run(inputs), want) <= kTolerance;
        good &= tiers.wait().ok() && tiers.report().tier == "full";
        good &= difference(tiers.run(inputs), want) <= kTolerance;
        _exit(good ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(tiers.wait().ok());
}
#endif

}  // namespace
}  // namespace tessera::tiers_test
