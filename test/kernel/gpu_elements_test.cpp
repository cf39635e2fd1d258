// Maps of elements that cannot be read or written in vectors, for blocks of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_elements_test {
namespace {

using testing::HasSubstr;

// What its kernels say.
std::string expect_elements(const std::string& text, const SymbolValues& symbols = {}) {
    SCOPED_TRACE(text);
    const auto graph = graph_of(text);
    const Inputs inputs = random_inputs(*graph, symbols, 5);
    const auto want = evaluate(*graph, inputs);
    EXPECT_TRUE(want.ok()) << want.error().to_string();
    LowerOptions options;
    options.machine = *describe_target("sm_90a");
    const Program program = lowered(text, options);
    const auto got = run_program(program, inputs, {.races = InterpretOptions::Races::Find});
    EXPECT_TRUE(got.ok()) << got.error().to_string();
    for (size_t i = 0; got.ok() && i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    std::string kernels;
    for (const Kernel& k : program.kernels) kernels += to_string(k);
    return kernels;
}

TEST(GpuElements, AThreadHasSeveral) {
    EXPECT_THAT(expect_elements("graph g(x: f16[551,1001]) {\n  return slice(x, [1], [1000], [1])\n}\n"),
                testing::AllOf(HasSubstr("alloc pending"), HasSubstr("unrolled")));
    EXPECT_THAT(expect_elements("graph g(x: f16[5,111,1001]) {\n  return pad(x, [0,1,1,0,1,1])\n}\n"),
                HasSubstr("alloc pending"));
    // Rows of the output begin anywhere: vectors would be split.
    EXPECT_THAT(expect_elements("graph g(a: f16[8,68000], b: f16[8,33]) {\n  return concat(a, b, axis=1)\n}\n"),
                HasSubstr("alloc pending"));
}

// The end of a tensor and its beginning, along two axes: one kernel, whatever the type.
TEST(GpuElements, RollsAreOneKernel) {
    for (const char* dtype : {"f32", "f16", "bf16"}) {
        const std::string kernels = expect_elements(fmt::format(
            "graph g(x: {}[2,14,14,96]) {{\n  %a = slice(x, [3], [14], [1])\n  %b = slice(x, [0], [3], [1])\n"
            "  %c = concat(%a, %b, axis=1)\n  %d = slice(%c, [3], [14], [2])\n  %e = slice(%c, [0], [3], [2])\n"
            "  return concat(%d, %e, axis=2)\n}}\n",
            dtype));
        EXPECT_EQ(kernels.find("kernel ", 1), std::string::npos) << kernels;
    }
}

// Halves of a head, exchanged and one of them negated; what comes after the first elements is only moved.
TEST(GpuElements, RotaryEmbeddingsAreOneKernel) {
    auto rotated = [](const char* dtype, int64_t head, int64_t turned, const char* rows) {
        return fmt::format(
            "graph g(x: {0}[{3},{1}], c: {0}[{3},{2}], s: {0}[{3},{2}]) {{\n"
            "  %t = slice(x, [0], [{2}], [2])\n  %r = slice(x, [{2}], [{1}], [2])\n"
            "  %a = slice(%t, [0], [{4}], [2])\n  %b = slice(%t, [{4}], [{2}], [2])\n  %n = neg(%b)\n"
            "  %h = concat(%n, %a, axis=2)\n  %tc = mul(%t, c)\n  %hs = mul(%h, s)\n  %y = add(%tc, %hs)\n"
            "  return concat(%y, %r, axis=2)\n}}\n",
            dtype, head, turned, rows, turned / 2);
    };
    for (const char* dtype : {"f32", "f16", "bf16"})
        for (const auto& [head, turned] :
             std::vector<std::pair<int64_t, int64_t>>{{64, 64}, {80, 32}, {24, 8}, {7, 6}}) {
            const std::string kernels = expect_elements(rotated(dtype, head, turned, "2,37"));
            EXPECT_EQ(kernels.find("kernel ", 1), std::string::npos) << kernels;
            if (head > 7) EXPECT_THAT(kernels, HasSubstr("vector"));
        }
    expect_elements(rotated("f16", 64, 32, "1,N"), {{"N", 1}});
    expect_elements(rotated("f16", 64, 32, "1,N"), {{"N", 0}});
    // Pairs that lie side by side, as they were stacked.
    expect_elements(
        "graph g(x: f16[3,40,64]) {\n  %e = slice(x, [0], [64], [2], [2])\n  %o = slice(x, [1], [64], [2], [2])\n"
        "  %n = neg(%o)\n  %n1 = unsqueeze(%n, [3])\n  %e1 = unsqueeze(%e, [3])\n  %s = concat(%n1, %e1, axis=3)\n"
        "  return reshape(%s, [3,40,64])\n}\n");
}

// Planes that are looked up at the same places: a thread has several of them, and finds the places once.
TEST(GpuElements, ResizesFindPlacesOnce) {
    const std::string kernels =
        expect_elements("graph g(x: f16[1,4,181,182]) {\n  return resize(x, _, _, [1,4,363,365], mode=\"linear\")\n}\n");
    EXPECT_EQ(kernels.find("kernel ", 1), std::string::npos) << kernels;
    EXPECT_THAT(kernels, HasSubstr("unrolled"));
    for (const char* dtype : {"f32", "bf16"})
        for (const char* to : {"[2,3,1,1]", "[2,3,9,13]", "[2,3,4,14]"})
            expect_elements(fmt::format(
                "graph g(x: {}[2,3,5,7]) {{\n  return resize(x, _, _, {}, mode=\"linear\")\n}}\n", dtype, to));
    // Indices from the end stay so.
    expect_elements("graph g(x: f32[5,7]) {\n  return gather(x, [-1,0,-7,3], axis=1)\n}\n");
    expect_elements("graph g(x: f32[5,7]) {\n  return gather(x, [6,0,3], axis=1)\n}\n");
}

TEST(GpuElements, SmallPoolsAreOneKernel) {
    for (const char* dtype : {"f16", "bf16", "f32"})
        for (const char* window : {"kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]", "kernel_shape=[2,3]",
                                   "kernel_shape=[5,5], pads=[2,2,2,2]", "kernel_shape=[1,1], strides=[2,2]"}) {
            const std::string kernels = expect_elements(
                fmt::format("graph g(x: {}[2,3,11,13]) {{\n  return max_pool(x, {})\n}}\n", dtype, window));
            EXPECT_EQ(kernels.find("kernel ", 1), std::string::npos) << kernels;
        }
    expect_elements("graph g(x: f16[1,2,20,21]) {\n  return max_pool(x, kernel_shape=[9,9], pads=[4,4,4,4])\n}\n");
}

TEST(GpuElements, FewHaveAThreadEach) {
    EXPECT_THAT(expect_elements("graph g(x: f16[7,1001]) {\n  return slice(x, [1], [1000], [1])\n}\n"),
                testing::Not(HasSubstr("alloc pending")));
}

TEST(GpuElements, DynamicSizes) {
    for (int64_t n : {0, 1, 77, 3000})
        expect_elements("graph g(x: f32[N,5,7]) {\n  return pad(x, [0,1,1,0,0,2])\n}\n", {{"N", n}});
}

}  // namespace
}  // namespace tessera::test::gpu_elements_test
