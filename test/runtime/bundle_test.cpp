// Bundles, as C programs use them: built by cc alone, run, and compared with the evaluator.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/output_file.h"
#include "tessera/compile.h"

namespace tessera::bundle_test {
namespace {

namespace fs = std::filesystem;

std::string nested(std::vector<int> sizes, int modulus) {
    std::string text = "[";
    const int count = sizes[0];
    sizes.erase(sizes.begin());
    for (int i = 0; i < count; ++i)
        text += (i ? "," : "") + (sizes.empty() ? fmt::format("{}", double((i + 1) * 7 % modulus) / modulus - 0.45)
                                                : nested(sizes, modulus + 3 * i));
    return text + "]";
}

Model parsed(const std::string& text) {
    auto model = Model::parse(text);
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    return *model;
}

Model convolutions() {
    return parsed("graph net(x: f32[1,3,17,17]) {\n  const w1: f32[16,3,3,3] = " + nested({16, 3, 3, 3}, 31) +
                  "\n  const w2: f32[16,16,3,3] = " + nested({16, 16, 3, 3}, 29) +
                  "\n  const w3: f32[10,16] = " + nested({10, 16}, 37) + R"(
  a = conv(x, w1, pads=[1,1,1,1], strides=[2,2])
  b = relu(a)
  c = conv(b, w2, pads=[1,1,1,1])
  d = add(b, c)
  e = reduce_mean(d, [2,3], keepdims=0)
  f = transpose(w3, perm=[1,0])
  g = matmul(e, f)
  h = softmax(g, axis=1)
  return h, d
})");
}

Model mlp() {
    return parsed("graph mlp(x: f32[N,24]) {\n  const w: f32[24,40] = " + nested({24, 40}, 31) +
                  "\n  const b: f32[40] = " + nested({40}, 17) + R"(
  h = matmul(x, w)
  a = add(h, b)
  r = tanh(a)
  return r, x
})");
}

Model lookup() {
    return parsed("graph lookup(i: i64[4], j: i32[2]) {\n  const t: f32[50,24] = " + nested({50, 24}, 41) + R"(
  a = gather(t, i, axis=0)
  b = gather(a, j, axis=1)
  return b
})");
}

// While it lives, writing beyond so many bytes of a file fails, as on a full disk.
class SmallFiles {
  public:
    explicit SmallFiles(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit now{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &now);
    }
    ~SmallFiles() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, signal_);
    }
    SmallFiles(const SmallFiles&) = delete;
    SmallFiles& operator=(const SmallFiles&) = delete;

  private:
    void (*signal_)(int);
    rlimit before_{};
};

struct Ended {
    int status;
    std::string text;
};
Ended shell(const std::string& command) {
    FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    std::string text;
    char part[256];
    while (size_t n = fread(part, 1, sizeof part, pipe)) text.append(part, n);
    return {pclose(pipe), text};
}

std::string contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

class BundleTest : public testing::Test {
  protected:
    void SetUp() override {
        around_ = fs::temp_directory_path() / fmt::format("tessera-bundle-{}-{}", getpid(), counter_++);
        fs::create_directories(around_);
        folder_ = around_ / "out";
    }
    void TearDown() override {
        ::chmod(around_.c_str(), 0755);
        fs::remove_all(around_);
    }

    BundleReport write(const Model& model, const BundleOptions& options) {
        auto report = write_bundle(model, folder_.string(), options);
        EXPECT_TRUE(report.ok()) << report.error().to_string();
        return report.ok() ? *report : BundleReport();
    }

    // Runs the example on these inputs, which the model's own evaluation is compared with.
    void expect_as_evaluated(const Model& model, const NamedData& inputs, const std::string& runner = "") {
        std::string command = fmt::format("cd {} && {} ./example", folder_.string(), runner);
        for (const Port& port : model.inputs()) {
            const Tensor& t = inputs.at(port.name).tensor();
            const fs::path file = around_ / (port.name + ".raw");
            ASSERT_TRUE(write_file(file, {static_cast<const char*>(t.data()), size_t(t.bytes())}).ok());
            command += " " + file.string();
        }
        const Ended ended = shell(command);
        ASSERT_EQ(ended.status, 0) << ended.text;
        auto want = model.run(inputs);
        ASSERT_TRUE(want.ok());
        for (size_t i = 0; i < want->size(); ++i) {
            const Tensor& w = (*want)[i].tensor();
            const std::string got = contents(folder_ / fmt::format("output_{}.bin", i));
            ASSERT_EQ(int64_t(got.size()), w.bytes());
            const Tensor g = Tensor::view(w.dtype(), w.sizes(), got.data(), nullptr);
            for (int64_t k = 0; k < w.elements(); ++k)
                ASSERT_NEAR(g.real_at(k), w.real_at(k), 1e-5 * (1 + std::abs(w.real_at(k)))) << i << " " << k;
        }
    }

    void build(const std::string& compiler = "cc") {
        const Ended ended =
            shell(fmt::format("make -B -C {} CC='{} -Wall -Wextra -Werror -std=c99'", folder_.string(), compiler));
        ASSERT_EQ(ended.status, 0) << ended.text;
    }

    static bool has_compiler() { return shell("cc --version && make --version").status == 0; }

    fs::path around_, folder_;
    static inline int counter_ = 0;
};

TEST_F(BundleTest, ConvolutionsRunFromC) {
    if (!has_compiler()) GTEST_SKIP() << "there is no cc and make";
    const Model model = convolutions();
    const BundleReport report = write(model, {.name = "net"});
    EXPECT_EQ(report.files, (std::vector<std::string>{"net.o", "net.h", "net.weights", "example.c", "Makefile"}));
    for (const std::string& file : report.files) EXPECT_TRUE(fs::exists(folder_ / file)) << file;
    build();
    expect_as_evaluated(model, *model.random_inputs(5));
    const Ended own = shell(fmt::format("nm -g --defined-only {}/net.o", folder_.string()));
    EXPECT_EQ(own.text.find("tessera_"), std::string::npos) << own.text;  // two bundles can be linked together
}

// As compiled models do: subnormals are zeros unless the precision is strict, and the caller's mode comes back.
TEST_F(BundleTest, FlushesSubnormalsAsCompiledModelsDo) {
    const Model model = convolutions();
    const std::string load_mode("\xc5\xf8\xae", 3);  // vldmxcsr and vstmxcsr, which nothing else begins like
    for (const char* precision : {"default", "strict"}) {
        BundleOptions options{.name = "net"};
        options.compile.target = "x86_64-avx2";
        options.compile.precision = precision;
        write(model, options);
        const std::string object = contents(folder_ / "net.o");
        EXPECT_EQ(object.find(load_mode) == std::string::npos, precision == std::string("strict")) << precision;
    }
    const Model scale = parsed("graph scale(x: f32[4]) {\n  const s: f32[] = 0.5\n  y = mul(x, s)\n  return y\n}");
    if (!has_compiler()) GTEST_SKIP() << "there is no cc and make";
    const NamedData inputs{{"x", Datum(Tensor::of<float>({4}, {1e-40f, 3e-39f, -1e-41f, 2}))}};
    for (const char* precision : {"default", "strict"}) {
        BundleOptions options{.name = "scale"};
        options.compile.precision = precision;
        fs::remove_all(folder_);
        write(scale, options);
        build();
        const Tensor& x = inputs.at("x").tensor();
        ASSERT_TRUE(write_file(around_ / "x.raw", {static_cast<const char*>(x.data()), size_t(x.bytes())}).ok());
        ASSERT_EQ(shell(fmt::format("cd {} && ./example ../x.raw", folder_.string())).status, 0);
        const std::string got = contents(folder_ / "output_0.bin");
        auto executable = compile(scale, {.precision = precision, .cache = ""});
        ASSERT_TRUE(executable.ok());
        const Tensor want = executable->run(inputs)->at(0).tensor();
        EXPECT_EQ(got, std::string(static_cast<const char*>(want.data()), size_t(want.bytes()))) << precision;
    }
}

TEST_F(BundleTest, SizesAreGivenAndOutputsMayBeInputs) {
    const Model model = mlp();
    auto open = write_bundle(model, folder_.string());
    ASSERT_FALSE(open.ok());
    EXPECT_EQ(open.error().code(), Code::E0605);
    EXPECT_NE(open.error().to_string().find("set the size of N"), std::string::npos) << open.error().to_string();
    EXPECT_TRUE(fs::is_empty(around_));
    if (!has_compiler()) GTEST_SKIP() << "there is no cc and make";
    for (int64_t n : {1, 5}) {
        write(model, {.name = "mlp", .sizes = {{"N", n}}});  // the second time over the first
        build();
        expect_as_evaluated(model, *model.random_inputs(5, {{"N", n}}));
    }
}

TEST_F(BundleTest, IndicesAreChecked) {
    if (!has_compiler()) GTEST_SKIP() << "there is no cc and make";
    const Model model = lookup();
    write(model, {.name = "lookup"});
    build();
    expect_as_evaluated(model, {{"i", Datum(Tensor::of<int64_t>({4}, {0, 49, -50, 7}))},
                                {"j", Datum(Tensor::of<int32_t>({2}, {23, -24}))}});
    const int64_t wrong[] = {0, 1, 2, 50};
    ASSERT_TRUE(write_file(around_ / "i", {reinterpret_cast<const char*>(wrong), sizeof wrong}).ok());
    const Ended ended = shell(fmt::format("cd {} && ./example ../i", folder_.string()));
    EXPECT_NE(ended.status, 0);
    EXPECT_NE(ended.text.find("out of range"), std::string::npos) << ended.text;
}

TEST_F(BundleTest, ASharedLibrary) {
    if (!has_compiler()) GTEST_SKIP() << "there is no cc and make";
    const Model model = convolutions();
    write(model, {.name = "net", .shared_library = true});
    EXPECT_FALSE(fs::exists(folder_ / "net.o"));
    build();
    expect_as_evaluated(model, *model.random_inputs(6));
}

// The caller's threads: the same result as without.
TEST_F(BundleTest, RunsInParallel) {
    if (!has_compiler()) GTEST_SKIP() << "there is no cc and make";
    const Model model = convolutions();
    CompileOptions compile{.threads = 3};
    write(model, {.compile = compile, .name = "net"});
    const std::string program = R"(
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
static int calls;
static void pieces(void* context, int64_t extent, net_body body, void* data) {
    int64_t i;
    calls += *(int*)context;
    for (i = 0; i < extent; ++i) body(data, i, i + 1, (int)(i % NET_THREADS));
}
int main(void) {
    static char file[10000000], arena[NET_ARENA_BYTES];
    static float x[867], h[2][10], d[2][1296];
    const void* inputs[] = {x};
    int i, one = 1;
    FILE* f = fopen("net.weights", "rb");
    size_t size = fread(file, 1, sizeof file, f);
    void* outputs[2][2] = {{h[0], d[0]}, {h[1], d[1]}};
    for (i = 0; i < 867; ++i) x[i] = (float)(i % 13) - 6;
    if (net_check_weights(file, size)) return 1;
    if (net_run(inputs, outputs[0], net_weights(file), arena)) return 2;
    if (net_run_parallel(inputs, outputs[1], net_weights(file), arena, pieces, &one)) return 3;
    if (memcmp(h[0], h[1], sizeof h[0]) || memcmp(d[0], d[1], sizeof d[0])) return 4;
    inputs[0] = NULL;
    if (net_run(inputs, outputs[0], net_weights(file), arena) != 1) return 5;
    if (net_run(NULL, outputs[0], net_weights(file), arena) != 1) return 6;
    if (net_run(inputs, outputs[0], net_weights(file), NULL) != 1) return 7;
    return 0;
}
)";
    ASSERT_TRUE(write_file(around_ / "main.c", program).ok());
    const Ended ended =
        shell(fmt::format("cd {} && cc -I. -o ../main ../main.c net.o -lm && ../main", folder_.string()));
    EXPECT_EQ(ended.status, 0) << ended.text;
}

TEST_F(BundleTest, WrongWeightsAreRefused) {
    if (!has_compiler()) GTEST_SKIP() << "there is no cc and make";
    write(convolutions(), {.name = "net"});
    build();
    const std::string whole = contents(folder_ / "net.weights");
    auto refused = [&](const std::string& message, const std::function<void(std::string&)>& change) {
        std::string text = whole;
        change(text);
        ASSERT_TRUE(write_file(around_ / "changed", text).ok());
        const Ended ended = shell(fmt::format("cd {} && ./example -w ../changed", folder_.string()));
        EXPECT_NE(ended.status, 0);
        EXPECT_NE(ended.text.find(message), std::string::npos) << ended.text;
    };
    refused("not a weights file", [](std::string& t) { t.clear(); });
    refused("not a weights file", [](std::string& t) { t[0] = 'x'; });
    refused("another version", [](std::string& t) { t[8] = 99; });
    refused("another model", [](std::string& t) { t[16] ^= 1; });
    refused("cut short", [](std::string& t) { t.resize(t.size() - 8); });
    refused("damaged", [](std::string& t) { t[t.size() / 2] ^= 1; });
    EXPECT_NE(shell(fmt::format("cd {} && ./example -w nowhere", folder_.string())).status, 0);
}

TEST_F(BundleTest, ForOtherProcessors) {
    for (const auto& [target, machine] : {std::pair{"x86_64-avx512", EM_X86_64},
                                          {"x86_64-avx2", EM_X86_64},
                                          {"x86_64-sse4", EM_X86_64},
                                          {"aarch64-neon", EM_AARCH64}}) {
        CompileOptions compile{.target = target};
        write(convolutions(), {.compile = compile, .name = "net"});
        const std::string object = contents(folder_ / "net.o");
        Elf64_Ehdr header{};
        ASSERT_GE(object.size(), sizeof header);
        std::memcpy(&header, object.data(), sizeof header);
        EXPECT_EQ(std::memcmp(header.e_ident, ELFMAG, SELFMAG), 0);
        EXPECT_EQ(header.e_machine, machine) << target;
        EXPECT_NE(object.find("net_run_parallel"), std::string::npos);
        const std::string emulator = "qemu-x86_64-static -L /usr/x86_64-linux-gnu -cpu max";  // which has no AVX-512
        if (machine != EM_X86_64 || std::string_view(target) == "x86_64-avx512") continue;
        if (shell("x86_64-linux-gnu-gcc --version && qemu-x86_64-static --version").status != 0) continue;
        build("x86_64-linux-gnu-gcc");
        expect_as_evaluated(convolutions(), *convolutions().random_inputs(5), emulator);
    }
    CompileOptions compile{.target = "wasm32"};
    write(convolutions(), {.compile = compile, .name = "net"});
    EXPECT_EQ(contents(folder_ / "net.o").substr(0, 4), std::string("\0asm", 4));
    compile.target = "pdp11";
    EXPECT_EQ(write_bundle(mlp(), folder_.string(), {.compile = compile}).error().code(), Code::E0603);
}

TEST_F(BundleTest, WhatTheEvaluatorComputesIsRefused) {
    const Model model = parsed("graph g(x: f32[8]) {\n  y = unique(x)\n  z = reduce_sum(y)\n  return z\n}");
    auto refused = write_bundle(model, folder_.string());
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::E0605);
    EXPECT_NE(refused.error().message().find("unique"), std::string::npos) << refused.error().to_string();
    EXPECT_FALSE(fs::exists(folder_) && !fs::is_empty(folder_));
}

TEST_F(BundleTest, AllOrNothing) {
    const BundleOptions options{.name = "mlp", .sizes = {{"N", 2}}};
    // A folder with something else in it, and what is no folder.
    fs::create_directories(folder_);
    ASSERT_TRUE(write_file(folder_ / "thesis.txt", "mine").ok());
    EXPECT_EQ(write_bundle(mlp(), folder_.string(), options).error().code(), Code::E0105);
    EXPECT_EQ(contents(folder_ / "thesis.txt"), "mine");
    fs::remove_all(folder_);
    ASSERT_TRUE(write_file(folder_, "a file").ok());
    EXPECT_EQ(write_bundle(mlp(), folder_.string(), options).error().code(), Code::E0105);
    fs::remove(folder_);
    EXPECT_EQ(write_bundle(mlp(), (around_ / "a" / "b").string(), options).error().code(), Code::E0105);
    EXPECT_EQ(write_bundle(mlp(), "/proc/bundle", options).error().code(), Code::E0105);
    EXPECT_EQ(write_bundle(mlp(), folder_.string(), {.name = "no name", .sizes = {{"N", 2}}}).error().code(),
              Code::E0501);
    EXPECT_TRUE(fs::is_empty(around_));
    if (geteuid() != 0) {
        ::chmod(around_.c_str(), 0555);
        EXPECT_EQ(write_bundle(mlp(), folder_.string(), options).error().code(), Code::E0105);
        ::chmod(around_.c_str(), 0755);
        EXPECT_TRUE(fs::is_empty(around_));
    }
    write(mlp(), options);
    EXPECT_EQ(std::distance(fs::directory_iterator(around_), {}), 1);
}

TEST_F(BundleTest, AFullDiskLeavesNothing) {
    const BundleOptions options{.name = "mlp", .sizes = {{"N", 2}}};
    for (rlim_t bytes : {0, 100, 4000}) {
        const SmallFiles small(bytes);
        auto failed = write_bundle(mlp(), folder_.string(), options);
        ASSERT_FALSE(failed.ok());
        EXPECT_EQ(failed.error().code(), Code::E0105) << failed.error().to_string();
        EXPECT_TRUE(fs::is_empty(around_));
    }
    // A cache that cannot grow is no error.
    const Model model = convolutions();
    const SmallFiles small(1000);
    auto compiled = compile(model, {.cache = (around_ / "cache").string()});
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    EXPECT_TRUE(compiled->run(*model.random_inputs(1)).ok());
    EXPECT_TRUE(fs::is_empty(around_ / "cache"));
    EXPECT_NE(std::find_if(compiled->report().decisions.begin(), compiled->report().decisions.end(),
                           [](const auto& d) { return d.first == "keep the program"; }),
              compiled->report().decisions.end());
}

}  // namespace
}  // namespace tessera::bundle_test
