// Products whose operands no tile can be copied of: a launch of its own packs them, and the product reads copied tiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_packed_test {
namespace {

Program for_hopper(std::string_view text) {
    LowerOptions options;
    options.machine = *describe_target("sm_90a");
    auto program = from_graph(graph_of(text), options);
    EXPECT_TRUE(program.ok()) << program.error().to_string();
    return std::move(*program);
}

std::vector<std::string> packs(const Program& program) {
    std::vector<std::string> names;
    for (const Step& step : program.steps)
        if (const auto* kernel = std::get_if<KernelStep>(&step)) {
            const std::string& name = program.kernels[kernel->kernel].name;
            if (name.find("_packed_") != std::string::npos) names.push_back(name.substr(name.find("_packed_") + 1));
        }
    return names;
}

void expect_packed(const std::string& text, const std::vector<std::string>& wanted, const SymbolValues& symbols = {},
                   bool on_warpgroups = true) {
    SCOPED_TRACE(text);
    const Program program = for_hopper(text);
    EXPECT_EQ(packs(program), wanted);
    const bool wide = std::any_of(program.kernels.begin(), program.kernels.end(),
                                  [](const Kernel& k) { return to_string(k).find("call wgmma") != std::string::npos; });
    EXPECT_EQ(wide, on_warpgroups);
    auto graph = graph_of(text);
    const Inputs inputs = random_inputs(*graph, symbols, 7);
    auto want = evaluate(*graph, inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    for (bool backwards : {false, true}) {
        auto got = run_program(program, inputs, {.backwards = backwards, .races = InterpretOptions::Races::Find});
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        for (size_t i = 0; i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    }
}

TEST(GpuPacked, RowsThatBeginAnywhere) {
    expect_packed("graph g(a: f16[70,203], b: f16[203,77]) {\n  return matmul(a, b)\n}\n", {"packed_a", "packed_b"});
    expect_packed("graph g(a: bf16[70,203], b: bf16[203,80]) {\n  return matmul(a, b)\n}\n", {"packed_a"});
    expect_packed("graph g(a: f16[3,70,200], b: f16[3,200,77]) {\n  return matmul(a, b)\n}\n", {"packed_b"});
    expect_packed(
        "graph g(a: f16[203,70], b: f16[77,203]) {\n  %0 = transpose(a, perm=[1,0])\n"
        "  %1 = transpose(b, perm=[1,0])\n  return matmul(%0, %1)\n}\n",
        {"packed_a", "packed_b"});
}

TEST(GpuPacked, WhatIsComputedOnTheWay) {
    // Windows of 7 x 7, taken out of an image.
    expect_packed(
        "graph g(x: f16[1,14,14,99], w: f16[99,72]) {\n  %0 = reshape(x, [1,2,7,2,7,99])\n"
        "  %1 = transpose(%0, perm=[0,1,3,2,4,5])\n  %2 = reshape(%1, [4,49,99])\n  return matmul(%2, w)\n}\n",
        {"packed_a"});
}

TEST(GpuPacked, FunctionsAreComputedOnce) {
    const char* gated =
        "graph g(x: {0}[{1},{2}], w: {0}[{3},{4}]) {{\n  %0, %1 = split(x, axis=-1, num_outputs=2)\n"
        "  %2 = sigmoid(%0)\n  %3 = mul(%0, %2)\n  %4 = mul(%3, %1)\n  return matmul(%4, w)\n}}\n";
    auto text = [&](const char* dtype, int m, int k, int n) {
        return fmt::format(fmt::runtime(gated), dtype, m, 2 * k, k, n);
    };
    expect_packed(text("bf16", 130, 184, 128), {"packed_a"});
    expect_packed(text("f32", 130, 96, 200), {"packed_a"}, {}, false);
}
TEST(GpuPacked, FewColumnsAreSumsOfRows) {
    expect_packed(
        "graph g(a: f16[70,520], b: f16[3,520]) {\n  %0 = transpose(b, perm=[1,0])\n"
        "  return matmul(a, %0)\n}\n",
        {}, {}, false);
}
TEST(GpuPacked, FewChannelsOfAnImage) {
    expect_packed(
        "graph g(x: f16[1,3,33,33], w: f16[64,3,7,7]) {\n"
        "  return conv(x, w, pads=[3,3,3,3], strides=[2,2], kernel_shape=[7,7])\n}\n",
        {"packed_a", "packed_b"});
}

// Channels that become neighbouring pixels, as in transposed convolutions whose stride is their kernel's size: each
// result is stored where it belongs.
TEST(GpuPacked, ChannelsBecomePixels) {
    auto check = [](const char* dtype, const char* size, const char* conv, const char* move, bool wide = true) {
        expect_packed(fmt::format("graph g(x: {0}[{1},64], w: {0}[128,64,1,1], b: {0}[128]) {{\n"
                                  "  %0 = transpose(x, perm=[0,3,1,2])\n  %c = conv(%0, {2})\n"
                                  "  %r = relu(%c)\n  %y = {3}\n  return transpose(%y, perm=[0,2,3,1])\n}}\n",
                                  dtype, size, conv, move),
                      {}, {}, wide);
    };
    const char* phases = "join_phases(%r, strides=[2,2], begins=[0,0], ends=[0,0])";
    check("f16", "2,5,7", "w", phases);
    check("bf16", "1,9,1", "w, b", phases);
    check("f32", "1,3,2", "w, b", phases, false);
    check("f16", "1,1,1", "w, b", phases, false);
    check("bf16", "2,3,1", "w, b", "join_phases(%r, strides=[1,4], begins=[0,0], ends=[0,0])");
    check("f16", "1,5,3", "w, b", "depth_to_space(%r, blocksize=2)");
    check("f16", "1,1,2", "w", "depth_to_space(%r, blocksize=2, mode=\"CRD\")");
    const Program program = for_hopper(
        "graph g(x: f16[8,24,24,96], w: f16[1536,96,1,1]) {\n  %0 = transpose(x, perm=[0,3,1,2])\n"
        "  %c = conv(%0, w)\n  %y = join_phases(%c, strides=[4,4], begins=[0,0], ends=[0,0])\n"
        "  return transpose(%y, perm=[0,2,3,1])\n}\n");
    EXPECT_EQ(program.kernels.size(), 1u);
}

// Windows of 7 x 7 of an image, stored one after the other: digits of a row's number in another order.
TEST(GpuPacked, RowsAreStoredInAnotherOrder) {
    const std::string store =
        "y[64*floordiv(b, 49) + mod(floordiv(64*b + t, 7), 8) + 8*mod(floordiv(64*b + t, 392), 8), "
        "mod({}, 7) + 7*mod(floordiv(64*b + t, 56), 7)] = 1.0";
    for (const auto& [digit, apart] : {std::pair("b + t", true), std::pair("b", false), std::pair("2*t", false)}) {
        const std::string text =
            "kernel k() (y: f32[512, 49]) {\n  bound b < 392 on block.x {\n    bound t < 64 on thread.x {\n      " +
            fmt::format(fmt::runtime(store), digit) + "\n    }\n  }\n}\n";
        auto kernels = parse_kernels(text);
        ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
        EXPECT_EQ(verify((*kernels)[0]).ok(), apart) << text;
    }
    // Of many points, digits that stand alone in an index need not be counted.
    for (const auto& [low, apart] :
         {std::pair("8*mod(32*b + t, 12) + p", true), std::pair("8*mod(32*b + t, 12) + 2*p", false),
          std::pair("4*mod(32*b + t, 12) + p", false)}) {
        const std::string many =
            "kernel k() (y: f32[48, 4096, 96]) {\n  bound c < 4096 on block.y {\n    bound b < 18 on block.x {\n"
            "      bound t < 32 on thread.y {\n        bound p < 8 on thread.x {\n          "
            "y[floordiv(32*b + t, 12), c, " +
            std::string(low) + "] = 1.0\n        }\n      }\n    }\n  }\n}\n";
        auto kernels = parse_kernels(many);
        ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
        EXPECT_EQ(verify((*kernels)[0]).ok(), apart) << many;
    }
    const std::string text =
        "graph g(x: f16[1,56,14,64], w: f16[64,72], r: f16[1,72,56,14]) {\n  %0 = matmul(x, w)\n"
        "  %1 = transpose(r, perm=[0,2,3,1])\n  %2 = add(%0, %1)\n  %3 = reshape(%2, [1,8,7,2,7,72])\n"
        "  %4 = transpose(%3, perm=[0,1,3,2,4,5])\n  return reshape(%4, [16,49,72])\n}\n";
    expect_packed(text, {});
}

TEST(GpuPacked, OnceForAllThatReadIt) {
    const std::string text =
        "graph g(a: f16[70,203], b: f16[203,80], c: f16[203,88]) {\n  %0 = matmul(a, b)\n  %1 = matmul(a, c)\n"
        "  return %0, %1\n}\n";
    expect_packed(text, {"packed_a"});
}

TEST(GpuPacked, SizesThatAreNotKnown) {
    expect_packed("graph g(a: f16[N,203], b: f16[203,80]) {\n  return matmul(a, b)\n}\n", {"packed_a"}, {{"N", 67}});
    expect_packed("graph g(a: f16[70,K], b: f16[K,80]) {\n  return matmul(a, b)\n}\n", {"packed_a"}, {{"K", 67}});
}

}  // namespace
}  // namespace tessera::test::gpu_packed_test
