// Products of sizes that no tile divides, and of few rows or columns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/gpu/wgmma_kernel.h"
#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_products_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The program's kernels, once they compute what the evaluator does, threads in both orders.
std::string kernels_of_right(const std::string& text, const char* target = "sm_90a") {
    SCOPED_TRACE(text);
    LowerOptions options;
    options.machine = *describe_target(target);
    auto graph = graph_of(text);
    auto program = from_graph(graph, options);
    EXPECT_TRUE(program.ok()) << program.error().to_string();
    if (!program.ok()) return {};
    const Inputs inputs = random_inputs(*graph, {}, 11);
    auto want = evaluate(*graph, inputs);
    EXPECT_TRUE(want.ok()) << want.error().to_string();
    for (bool backwards : {false, true}) {
        auto got = run_program(*program, inputs, {.backwards = backwards, .races = InterpretOptions::Races::Find});
        EXPECT_TRUE(got.ok()) << got.error().to_string();
        if (got.ok() && want.ok()) expect_close((*got)[0], (*want)[0]);
    }
    std::string all;
    for (const Kernel& kernel : program->kernels) all += to_string(kernel);
    return all;
}

std::string product(const char* dtype, int64_t m, int64_t k, int64_t n, bool transposed = false) {
    const std::string b = transposed ? fmt::format("{},{}", n, k) : fmt::format("{},{}", k, n);
    return fmt::format(
        "graph g(a: {0}[{1},{2}], b: {0}[{3}]) {{\n{4}}}\n", dtype, m, k, b,
        transposed ? "  %0 = transpose(b, perm=[1,0])\n  return matmul(a, %0)\n" : "  return matmul(a, b)\n");
}

// Of 23 steps along k, which no number of parts divides, the last part has fewer.
TEST(GpuProducts, PartsOfUnevenLength) {
    const WgmmaShape shape = choose_wgmma(*describe_target("sm_90a"), {.m = 72, .n = 64, .steps = 23});
    EXPECT_GT(shape.parts, 1);
    EXPECT_NE(23 % shape.parts, 0);
    EXPECT_EQ(choose_wgmma(*describe_target("sm_90a"), {.m = 72, .n = 64, .steps = 23, .even_parts = true}).parts, 1);
    EXPECT_THAT(kernels_of_right(product("f16", 72, 1472, 64)),
                AllOf(HasSubstr("call wgmma"), HasSubstr("on block.z")));
    EXPECT_THAT(kernels_of_right(product("bf16", 24, 1472, 64), "sm_90"),
                AllOf(HasSubstr("call mma"), HasSubstr("part < 5 on block.z")));
    EXPECT_THAT(kernels_of_right(product("f32", 20, 1040, 20)), HasSubstr("part < 4 on block.z"));
    EXPECT_THAT(kernels_of_right(product("f32", 20, 1040, 19, true)), HasSubstr("on block.z"));
}

// Columns that no vector divides are taken some apart; what is left of k is added last.
TEST(GpuProducts, FewRows) {
    for (const char* dtype : {"f16", "f32"})
        for (int64_t m : {1, 3})
            for (int64_t n : {301, 264})
                EXPECT_THAT(kernels_of_right(product(dtype, m, 1003, n)), AllOf(HasSubstr("deep"), HasSubstr("met")));
    EXPECT_THAT(kernels_of_right(product("bf16", 1, 2200, 40)), HasSubstr("on block.z"));
    EXPECT_THAT(kernels_of_right(product("f16", 2, 7, 333)), HasSubstr("deep"));
}

// Few columns are copied along k, which packing makes of others.
TEST(GpuProducts, FewColumns) {
    EXPECT_THAT(kernels_of_right(product("f16", 150, 520, 24, true)),
                AllOf(HasSubstr("call wgmma"), Not(HasSubstr("packed"))));
    EXPECT_THAT(kernels_of_right(product("f16", 130, 1032, 8)), AllOf(HasSubstr("call wgmma"), HasSubstr("packed_b")));
    EXPECT_THAT(kernels_of_right(product("bf16", 130, 517, 5)), AllOf(HasSubstr("packed_a"), HasSubstr("packed_b")));
    EXPECT_THAT(kernels_of_right(product("f16", 200, 64, 24)), AllOf(HasSubstr("call mma"), Not(HasSubstr("wgmma"))));
}

// Squares of the output that are whole are stored without looking where each element is.
TEST(GpuProducts, LinesOfWholeSquares) {
    EXPECT_THAT(kernels_of_right(product("f16", 130, 64, 131, true)),
                AllOf(HasSubstr("call wgmma"), HasSubstr("all_line0")));
}

}  // namespace
}  // namespace tessera::test::gpu_products_test
