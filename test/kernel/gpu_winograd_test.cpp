// Winograd convolutions for blocks of threads: what their kernels compute is what the evaluator gives for the
// convolution, each transform is one kernel of whole tiles in registers, and the choice is made by the GPU's numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/ops/conv_tiles.h"
#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_winograd_test {
namespace {

using testing::HasSubstr;

// An image that a kernel makes, a convolution of it, and what follows.
struct Case {
    int64_t images, channels, outputs, height, width;
    std::vector<int64_t> tiles = {4, 4}, kernel = {3, 3}, pads = {1, 1, 1, 1};
    std::string follows = "relu(%y)";  // an expression of %y and, with as many channels, of %x
    std::string leaves = "max_pool(%z, kernel_shape=[2,2])";
};

std::string numbers(std::mt19937& gen, int64_t count) {
    std::uniform_real_distribution<double> real(-1, 1);
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += fmt::format("{}{:.3f}", i ? "," : "", real(gen));
    return text;
}

std::string text_of(const Case& c) {
    std::mt19937 gen(7);
    const int64_t taps = c.kernel[0] * c.kernel[1];
    return fmt::format(
        "graph g(given: f32[{0},{1},{3},{4}]) {{\n  const w: f32[{2},{1},{5},{6}] = [{7}]\n  const b: f32[{2}] = "
        "[{8}]\n"
        "  %x = max_pool(given, kernel_shape=[1,1])\n  %y = conv(%x, %w, %b, pads=[{9}], tiles=[{10}])\n  %z = {11}\n"
        "  return {12}\n}}\n",
        c.images, c.channels, c.outputs, c.height, c.width, c.kernel[0], c.kernel[1],
        numbers(gen, c.outputs * c.channels * taps), numbers(gen, c.outputs), fmt::join(c.pads, ","),
        fmt::join(c.tiles, ","), c.follows, c.leaves);
}

Program lowered_for_gpu(const std::string& text) {
    LowerOptions options;
    options.machine = *describe_target("sm_90");
    return lowered(text, options);
}

const Kernel* find_kernel(const Program& program, std::string_view begins) {
    for (const Kernel& k : program.kernels)
        if (k.name.starts_with(begins)) return &k;
    return nullptr;
}

void expect_computed(const Case& c) {
    const std::string text = text_of(c);
    SCOPED_TRACE(fmt::format("{} images of {}x{}x{}, {} outputs, tiles of {}x{}, {}", c.images, c.channels, c.height,
                             c.width, c.outputs, c.tiles[0], c.tiles[1], c.follows));
    auto graph = graph_of(text);
    const Inputs inputs = random_inputs(*graph, {}, 3);
    auto want = evaluate(*graph, inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    const Program program = lowered_for_gpu(text);
    EXPECT_TRUE(find_kernel(program, "winograd_input"));
    EXPECT_TRUE(find_kernel(program, "winograd_output"));
    EXPECT_FALSE(find_kernel(program, "pad"));
    for (bool backwards : {false, true}) {
        auto got = run_program(program, inputs, {.backwards = backwards, .races = InterpretOptions::Races::Find});
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        expect_close((*got)[0], (*want)[0]);
    }
}

TEST(GpuWinograd, TilesComputeTheConvolution) {
    expect_computed({1, 4, 4, 8, 8});
    expect_computed({2, 3, 5, 9, 11});  // rows and columns beside whole tiles, channels that fill no vector
    expect_computed({1, 1, 1, 2, 3});
    for (int64_t side : {2, 3, 6}) expect_computed({2, 5, 3, 7, 10, {side, side}});
    expect_computed({1, 3, 4, 10, 9, {4, 4}, {3, 3}, {0, 2, 1, 0}});
    expect_computed({1, 3, 4, 6, 9, {1, 4}, {1, 7}, {0, 3, 0, 3}});
    expect_computed({1, 3, 4, 9, 6, {3, 1}, {5, 1}, {2, 0, 2, 0}});
}

TEST(GpuWinograd, WhatFollowsIsComputedFromRegisters) {
    Case sum{2, 3, 3, 7, 9};
    sum.follows = "add(%y, %x)";  // which has nothing beside the result
    expect_computed(sum);
    const std::string text = to_string(*find_kernel(lowered_for_gpu(text_of(sum)), "winograd_output"));
    EXPECT_THAT(text, HasSubstr("f32[4, 4] register"));
}

TEST(GpuWinograd, ResultsMayLeaveInOnnxOrder) {
    Case alone{2, 3, 5, 9, 7};
    alone.leaves = "relu(%z)";
    expect_computed(alone);
}

TEST(GpuWinograd, EachTransformIsOneKernelOfWholeTiles) {
    const Program program = lowered_for_gpu(text_of({1, 8, 8, 16, 16}));
    const Kernel *in = find_kernel(program, "winograd_input"), *out = find_kernel(program, "winograd_output");
    ASSERT_TRUE(in && out);
    EXPECT_THAT(to_string(*in), HasSubstr("f32[6, 6] register"));
    EXPECT_THAT(to_string(*out), HasSubstr("f32[4, 4] register"));
    // A thread for each tile and channel, and its channel changes fastest.
    EXPECT_THAT(to_string(*in), HasSubstr("< 128 {"));
    EXPECT_THAT(to_string(*out), HasSubstr("< 128 {"));
    EXPECT_EQ(program.kernels.size(), 5u);  // and two pools, and the product
}

// What takes so long directly, in tiles, and which are chosen.
struct Estimate {
    double direct, tiled;
    int64_t side;
};

Estimate estimate(int64_t images, int64_t channels, int64_t outputs, int64_t side) {
    const Machine machine = *describe_target("sm_90");
    ConvTiles c{};
    c.channels = channels, c.outputs = outputs, c.images = images;
    for (auto& axis : c.axes) axis = {3, side, 1, 1, 4};
    c = fastest_tiles(c, machine);
    return {direct_seconds(c, machine), tiled_seconds(c, machine), c.axes[0].side};
}

TEST(GpuWinograd, ManyChannelsPayAndFewDoNot) {
    const Estimate many = estimate(16, 512, 512, 28), few = estimate(16, 3, 64, 224), small = estimate(1, 512, 512, 7);
    EXPECT_GT(many.direct, 2 * many.tiled);
    EXPECT_EQ(many.side, 4);
    EXPECT_LT(few.direct, 1.3 * few.tiled);
    EXPECT_EQ(small.side, 2);  // of 4x4 there would be four
}

}  // namespace
}  // namespace tessera::test::gpu_winograd_test
