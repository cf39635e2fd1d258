// Depthwise convolutions and pools for blocks of threads: any window, stride, dilation and order of the output, thread
// by thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_windows_test {
namespace {

using testing::HasSubstr;

// What its kernels say.
std::string expect_windows(const std::string& text, const SymbolValues& symbols = {}) {
    SCOPED_TRACE(text);
    const auto graph = graph_of(text);
    const Inputs inputs = random_inputs(*graph, symbols, 5);
    const auto want = evaluate(*graph, inputs);
    EXPECT_TRUE(want.ok()) << want.error().to_string();
    LowerOptions options;
    options.machine = *describe_target("sm_90a");
    const Program program = lowered(text, options);
    std::string kernels;
    for (const Kernel& k : program.kernels) kernels += to_string(k);
    for (bool backwards : {false, true}) {
        const auto got = run_program(program, inputs, {.backwards = backwards, .races = InterpretOptions::Races::Find});
        EXPECT_TRUE(got.ok()) << got.error().to_string() << "\n" << kernels;
        for (size_t i = 0; got.ok() && i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    }
    return kernels;
}

struct Depthwise {
    const char* dtype = "f16";
    int64_t batch = 1, channels = 20, height = 9, width = 13, high = 7, wide = 7, stride = 1, dilation = 1, pad = 3;
    const char* after = "  return %c\n";

    std::string text() const {
        return fmt::format(
            "graph g(x: {0}[{1},{2},{3},{4}], w: {0}[{2},1,{5},{6}], b: {0}[{2}]) {{\n"
            "  %c = conv(x, w, b, group={2}, kernel_shape=[{5},{6}], pads=[{9},{9},{9},{9}], strides=[{7},{7}], "
            "dilations=[{8},{8}])\n{10}}}\n",
            dtype, batch, channels, height, width, high, wide, stride, dilation, pad, after);
    }
};

constexpr const char* kToChannelsLast = "  return transpose(%c, perm=[0,2,3,1])\n";

TEST(GpuWindows, ImageIsReadIntoSharedMemoryOnce) {
    EXPECT_THAT(expect_windows(Depthwise{}.text()), HasSubstr("alloc image: f16["));
    EXPECT_THAT(expect_windows(Depthwise{.after = kToChannelsLast}.text()),
                testing::AllOf(HasSubstr("alloc image: f16["), HasSubstr("alloc sums: f32[")));
}

TEST(GpuWindows, SmallWindowsWithAStrideAreReadWhereTheyLie) {
    const Depthwise small{.channels = 6, .width = 32, .high = 3, .wide = 3, .stride = 2, .pad = 1};
    EXPECT_THAT(expect_windows(small.text()), testing::Not(HasSubstr("alloc image")));
    expect_windows(Depthwise{.channels = 6, .width = 32, .stride = 2}.text());
}

TEST(GpuWindows, SizesAtRandom) {
    std::mt19937 random(7);
    const auto draw = [&](int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    for (int i = 0; i < 30; ++i) {
        Depthwise d{.dtype = std::vector<const char*>{"f16", "bf16", "f32"}[size_t(draw(0, 2))],
                    .batch = draw(1, 2),
                    .channels = draw(2, 40),
                    .height = draw(7, 20),
                    .width = draw(7, 70),
                    .high = draw(1, 9),
                    .wide = draw(1, 9),
                    .stride = draw(1, 3),
                    .dilation = draw(1, 2)};
        d.pad = draw(0, 4);
        d.high = std::min(d.high, (d.height + 2 * d.pad - 1) / d.dilation + 1);
        d.wide = std::min(d.wide, (d.width + 2 * d.pad - 1) / d.dilation + 1);
        if (draw(0, 1)) d.after = kToChannelsLast;
        expect_windows(d.text());
    }
}

TEST(GpuWindows, LargeWindows) {
    expect_windows(Depthwise{.channels = 3, .height = 24, .width = 24, .high = 21, .wide = 21, .pad = 10}.text());
    expect_windows(Depthwise{.channels = 2, .height = 6, .width = 150, .high = 3, .wide = 3, .pad = 1}.text());
}

TEST(GpuWindows, WhatFollowsIsComputedThere) {
    expect_windows(
        "graph g(x: f16[2,24,9,16], w: f16[24,1,3,3], b: f16[24], r: f16[2,9,16,24]) {\n"
        "  %c = conv(x, w, b, group=24, kernel_shape=[3,3], pads=[1,1,1,1])\n"
        "  %t = transpose(%c, perm=[0,2,3,1])\n  %h = relu(%t)\n  return add(%h, r)\n}\n");
    expect_windows(
        "graph g(x: f32[N,6,8,8], w: f32[6,1,5,5]) {\n"
        "  %c = conv(x, w, group=6, kernel_shape=[5,5], pads=[2,2,2,2])\n  return sigmoid(%c)\n}\n",
        {{"N", 3}});
}

// A product gives all taps of few output channels, which a map adds up.
TEST(GpuWindows, FewOutputChannels) {
    for (const char* form : {"f16[1,16,32,131], w: f16[1,16,3,3], b: f16[1]|pads=[1,1,1,1]",
                             "bf16[1,16,64,70], w: bf16[3,16,3,2], b: bf16[3]|pads=[0,2,1,0], dilations=[2,1]"}) {
        const std::string all(form), inputs = all.substr(0, all.find('|')), attrs = all.substr(all.find('|') + 1);
        EXPECT_THAT(expect_windows(fmt::format("graph g(x: {}) {{\n  return conv(x, w, b, {})\n}}\n", inputs, attrs)),
                    HasSubstr("mma_"));
    }
}

// A slice of the channels is as good as all of them.
TEST(GpuWindows, SomeOfTheChannels) {
    for (const char* after : {"  return %c\n", kToChannelsLast})
        EXPECT_THAT(expect_windows(
                        fmt::format("graph g(x: f16[2,23,9,13], w: f16[16,1,3,3]) {{\n  %s = slice(x, [5], [21], [1])\n"
                                    "  %c = conv(%s, w, group=16, pads=[1,1,1,1])\n{}}}\n",
                                    after)),
                    HasSubstr("alloc image: f16["));
}

TEST(GpuWindows, OneAxisAndPools) {
    expect_windows(
        "graph g(x: f16[2,12,50], w: f16[12,1,9]) {\n"
        "  return conv(x, w, group=12, kernel_shape=[9], pads=[4,4])\n}\n");
    expect_windows(
        "graph g(x: f32[2,5,17,23]) {\n"
        "  return max_pool(x, kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1])\n}\n");
    expect_windows("graph g(x: f16[1,4,16,16]) {\n  return average_pool(x, kernel_shape=[5,5], pads=[2,2,2,2])\n}\n");
    // What is not a number reaches every window that it lies in, and no other.
    expect_windows(
        "graph g(x: f32[1,3,9,16], w: f32[3,1,3,3]) {\n  %l = log(x)\n"
        "  return conv(%l, w, group=3, kernel_shape=[3,3], pads=[1,1,1,1])\n}\n");
}

}  // namespace
}  // namespace tessera::test::gpu_windows_test
