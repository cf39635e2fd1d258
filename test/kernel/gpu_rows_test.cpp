// Norms, softmaxes and reductions along rows for blocks of threads: any length, any number of rows, thread by thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_rows_test {
namespace {

using Races = InterpretOptions::Races;
using testing::HasSubstr;
using testing::Not;

// What its kernels say.
std::string expect_rows(const std::string& text, const SymbolValues& symbols = {}, const char* target = "sm_90a") {
    SCOPED_TRACE(text);
    const auto graph = graph_of(text);
    const Inputs inputs = random_inputs(*graph, symbols, 5);
    const auto want = evaluate(*graph, inputs);
    EXPECT_TRUE(want.ok()) << want.error().to_string();
    LowerOptions options;
    options.machine = *describe_target(target);
    const Program program = lowered(text, options);
    std::string kernels;
    for (const Kernel& k : program.kernels) kernels += to_string(k);
    for (bool backwards : {false, true}) {
        const auto got = run_program(program, inputs, {.backwards = backwards, .races = Races::Find});
        EXPECT_TRUE(got.ok()) << got.error().to_string() << "\n" << kernels;
        for (size_t i = 0; got.ok() && i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    }
    return kernels;
}

std::string softmax(const std::string& type) {
    return fmt::format("graph g(x: {}) {{\n  return softmax(x, axis=-1)\n}}\n", type);
}

std::string layer_norm(const std::string& dtype, const std::string& shape, const std::string& last) {
    return fmt::format("graph g(x: {0}[{1}], s: {0}[{2}], b: {0}[{2}]) {{\n  return layer_normalization(x, s, b)\n}}\n",
                       dtype, shape, last);
}

std::string rms_norm(const std::string& dtype, const std::string& shape, const std::string& last) {
    return fmt::format("graph g(x: {0}[{1}], s: {0}[{2}]) {{\n  return rms_normalization(x, s)\n}}\n", dtype, shape,
                       last);
}

// Rows that are pixels of an image behind the norm.
TEST(GpuRows, WhatFollowsHasOtherRows) {
    for (const char* type : {"f16[2,35,96]", "f32[3,70,24]"}) {
        const std::string shape(type), width = shape.substr(shape.rfind(',') + 1, 2), dtype = shape.substr(0, 3);
        EXPECT_THAT(expect_rows(fmt::format("graph g(x: {0}, s: {1}[{2}], b: {1}[{2}]) {{\n"
                                            "  %y = layer_normalization(x, s, b)\n"
                                            "  return reshape(%y, [-1,5,7,{2}])\n}}\n",
                                            type, dtype, width)),
                    testing::AllOf(HasSubstr("swap_lanes"), Not(HasSubstr("parallel"))));
    }
}

// A sum that reads no memory: as many ones as there are elements.
TEST(GpuRows, SumsOfNumbersOnly) {
    expect_rows(
        "graph g(x: f32[3,5,6,6], t: i64[3,6,6]) {\n  return negative_log_likelihood_loss(x, t, "
        "reduction=\"mean\")\n}\n");
}

// Of rows across memory, parts that are more than one thread combines are combined in two steps.
TEST(GpuRows, PartsOfLongRowsAreCombinedInSteps) {
    expect_rows("graph g(x: f16[9,33,1000]) {\n  return reduce_max(x, [0,2], keepdims=0)\n}\n");
    expect_rows(
        "graph g(x: f32[2,5000,33]) {\n  %m = reduce_mean(x, [0,1])\n  %d = sub(x, %m)\n"
        "  return reduce_mean(mul(%d, %d), [0,1])\n}\n");
}

// Sums of columns: a thread adds up as many neighbours as one load of 16 bytes holds. What is the same for all rows may
// be wider.
TEST(GpuRows, NeighbouringColumnsAreAddedUpAtOnce) {
    const char* text =
        "graph g(x: {0}[{1},{2}], m: f32[{2}]) {{\n  %c = cast(x, to=1)\n  %0 = sub(%c, m)\n  %1 = mul(%0, %0)\n"
        "  return reduce_mean(%1, [0], keepdims=0)\n}}\n";
    for (const auto& [rows, columns] : {std::pair(700, 64), {1001, 24}, {333, 40}, {260, 33}})
        for (const char* dtype : {"bf16", "f32"}) expect_rows(fmt::format(fmt::runtime(text), dtype, rows, columns));
    EXPECT_THAT(expect_rows(fmt::format(fmt::runtime(text), "f16", 700, 64)), HasSubstr("_register: f32[8] register"));
    expect_rows("graph g(x: f16[3,40,7,16]) {\n  return reduce_max(x, [0,1,2], keepdims=1)\n}\n");
}

// Groups of channels: rows for the statistics, of several dimensions for factors that each channel has its own of.
// Long columns are reduced in parts by blocks, and the parts by others. What comes before and after them, as in the
// statistics of a batch, is part of the same kernel; parts may be of different lengths.
TEST(GpuRows, LongColumnsAreReducedInParts) {
    for (const char* body : {"reduce_sum(x, [0,1], keepdims=0)", "reduce_max(x, [0,1], keepdims=0)",
                             "exp(reduce_mean(mul(x, sub(x, c)), [0,1], keepdims=0))"})
        EXPECT_THAT(expect_rows(fmt::format("graph g(x: f16[8,512,40], c: f16[40]) {{\n  return {}\n}}\n", body)),
                    HasSubstr("_parts"));
    EXPECT_THAT(expect_rows("graph g(x: f32[2,2731,24]) {\n  return reduce_sum(x, [0,1], keepdims=0)\n}\n"),
                HasSubstr("_parts"));
}

TEST(GpuRows, GroupsOfChannels) {
    auto grouped = [](const char* dtype, const char* shape, int channels, int groups) {
        return fmt::format(
            "graph g(x: {0}[{1}], s: {0}[{2}], b: {0}[{2}]) {{\n"
            "  %y = group_normalization(x, s, b, num_groups={3})\n  return relu(%y)\n}}\n",
            dtype, shape, channels, groups);
    };
    for (const char* dtype : {"f16", "bf16", "f32"}) {
        expect_rows(grouped(dtype, "2,12,8,8", 12, 3));
        expect_rows(grouped(dtype, "3,6,7,7", 6, 2));
        expect_rows(grouped(dtype, "1,40,1,3", 40, 8));
        expect_rows(grouped(dtype, "2,4,5,1", 4, 4));
    }
    expect_rows(grouped("f16", "N,8,16,4", 8, 2), {{"N", 1}});
    // As exporters write it: a norm of each group, reshaped, with factors of its own behind it.
    const std::string written = expect_rows(
        "graph g(x: f16[2,24,16,16], s: f16[24,1,1], b: f16[24,1,1], o: f16[4], z: f16[4]) {\n"
        "  %r = reshape(x, [2,4,-1])\n  %n = instance_normalization(%r, o, z)\n  %y = reshape(%n, [2,24,16,16])\n"
        "  %m = mul(%y, s)\n  %a = add(%m, b)\n  %g = sigmoid(%a)\n  return mul(%a, %g)\n}\n");
    EXPECT_EQ(written.find("kernel ", 1), std::string::npos) << written;
    EXPECT_THAT(written, HasSubstr("swap_lanes"));
}

TEST(GpuRows, LengthsAtRandom) {
    std::mt19937 random(11);
    const auto draw = [&](int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    for (int i = 0; i < 24; ++i) {
        const int64_t length = int64_t(std::exp(std::uniform_real_distribution<double>(0, 10)(random)));
        const int64_t rows = draw(1, std::max<int64_t>(1, std::min<int64_t>(70, 20000 / length)));
        const std::string dtype = std::vector<const char*>{"f16", "bf16", "f32"}[size_t(draw(0, 2))];
        const std::string n = std::to_string(length), shape = fmt::format("{},{}", rows, length);
        switch (draw(0, 3)) {
            case 0: expect_rows(softmax(fmt::format("{}[{}]", dtype, shape))); break;
            case 1: expect_rows(layer_norm(dtype, shape, n)); break;
            case 2: expect_rows(rms_norm(dtype, shape, n)); break;
            default:
                expect_rows(fmt::format("graph g(x: {}[{}]) {{\n  return {}(x, [1], keepdims={})\n}}\n", dtype, shape,
                                        std::vector<const char*>{"reduce_sum", "reduce_max", "reduce_min",
                                                                 "reduce_mean"}[size_t(draw(0, 3))],
                                        draw(0, 1)));
        }
    }
}

TEST(GpuRows, ShortRowsAreCombinedByShuffles) {
    for (int64_t length : {16, 32, 96, 100, 128, 200})
        EXPECT_THAT(expect_rows(softmax(fmt::format("f16[7,3,{}]", length))),
                    testing::AllOf(HasSubstr("swap_lanes"), Not(HasSubstr("met_"))));
    for (int64_t length : {17, 33, 40}) expect_rows(softmax(fmt::format("f16[7,3,{}]", length)));
    expect_rows(layer_norm("f16", "5,56,5,96", "96"));
    expect_rows(rms_norm("f32", "3,1,50", "50"));
}

TEST(GpuRows, LongRowsStayInRegistersOrSharedMemory) {
    EXPECT_THAT(expect_rows(softmax("f16[33,4096]")), testing::AllOf(HasSubstr("swap_lanes"), HasSubstr("met_")));
    EXPECT_THAT(expect_rows(rms_norm("f16", "33,40963", "40963")), HasSubstr("f16[1, 40963] shared"));
}

// Too long for the shared memory of a block: read again.
TEST(GpuRows, LongerRowsAreReadAgain) {
    EXPECT_THAT(expect_rows(rms_norm("f32", "33,41001", "41001"), {}, "sm_89"), Not(HasSubstr("41001] shared")));
}

TEST(GpuRows, DynamicSizes) {
    for (int64_t n : {0, 1, 2, 63, 64, 1000, 5001}) {
        expect_rows(softmax("f32[3,N]"), {{"N", n}});
        expect_rows(softmax("f16[N,96]"), {{"N", n % 100}});
    }
    expect_rows(layer_norm("f16", "M,N,80", "80"), {{"M", 3}, {"N", 5}});
    expect_rows(rms_norm("bf16", "M,N", "N"), {{"M", 3}, {"N", 777}});
    expect_rows("graph g(x: f32[N,64]) {\n  return reduce_sum(x, [1])\n}\n", {{"N", 0}});
}

TEST(GpuRows, SeveralAxesOfARow) {
    expect_rows(
        "graph g(x: f16[2,8,6,10], s: f16[8], b: f16[8]) {\n  return group_normalization(x, s, b, num_groups=2)\n}\n");
    expect_rows("graph g(x: f32[2,3,7,9], s: f32[3], b: f32[3]) {\n  return instance_normalization(x, s, b)\n}\n");
    expect_rows("graph g(x: f32[3,4,5,8]) {\n  return reduce_mean(x, [2,3], keepdims=0)\n}\n");
}

// Rows over channels: neighbouring threads have neighbouring pixels.
TEST(GpuRows, RowsThatLieAcross) {
    const auto over_channels = [](const char* type) {
        return fmt::format("graph g(x: {}) {{\n  return softmax(x, axis=1)\n}}\n", type);
    };
    for (const char* type : {"f16[2,20,37,31]", "bf16[1,70,50,41]"})
        EXPECT_THAT(expect_rows(over_channels(type)), testing::AllOf(HasSubstr("met_"), Not(HasSubstr("parallel"))));
    // A thread has all of a short row, and there is nothing to combine; a block has whole warps all the same.
    EXPECT_THAT(expect_rows(over_channels("f32[3,5,64,16]")),
                testing::AllOf(HasSubstr("< 128 on thread.x"), Not(HasSubstr("met_")), Not(HasSubstr("parallel"))));
    for (int64_t n : {1, 3}) expect_rows(over_channels("f32[N,19,40,33]"), {{"N", n}});
    expect_rows(over_channels("f16[2,N,40,33]"), {{"N", 23}});
    expect_rows(over_channels("f16[2,7,5,5]"));  // few rows
    expect_rows(
        "graph g(x: f32[2,12,40,30], s: f32[12,1,1], b: f32[12,1,1]) {\n  %m = reduce_mean(x, [1])\n"
        "  %d = sub(x, %m)\n  %q = mul(%d, %d)\n  %v = reduce_mean(%q, [1])\n  %e = add(%v, 0.00001)\n"
        "  %r = sqrt(%e)\n  %n = div(%d, %r)\n  %a = mul(%n, s)\n  return add(%a, b)\n}\n");
    expect_rows("graph g(x: f32[40,2050]) {\n  return reduce_max(x, [0], keepdims=0)\n}\n");
    expect_rows(
        "graph g(x: f16[2,16,40,32], s: f16[16], b: f16[16]) {\n  %t = transpose(x, perm=[0,2,3,1])\n"
        "  %n = layer_normalization(%t, s, b)\n  return transpose(%n, perm=[0,3,1,2])\n}\n");
}

TEST(GpuRows, NotANumberAndInfinity) {
    const char* kText =
        "graph g(x: f32[6,100]) {{\n  %a = add(x, {})\n  %l = log(%a)\n  %s = softmax(%l, axis=-1)\n"
        "  %m = reduce_max(%l, [1])\n  return %s, %m\n}}\n";
    for (const char* moved : {"-0.9", "0.0", "5.0"}) expect_rows(fmt::format(fmt::runtime(kText), moved));
    expect_rows("graph g(x: f32[4,70]) {\n  %a = div(x, 0.0)\n  return softmax(%a, axis=-1)\n}\n");
}

TEST(GpuRows, WhatFollowsAndComesBefore) {
    expect_rows(
        "graph g(x: f16[9,96], r: f16[9,96], s: f16[96]) {\n  %h = add(x, r)\n  %n = rms_normalization(%h, s)\n"
        "  return %n, %h\n}\n");
    expect_rows(
        "graph g(x: f16[2,5,48], s: f16[48], b: f16[48]) {\n  %n = layer_normalization(x, s, b)\n"
        "  return transpose(%n, perm=[0,2,1])\n}\n");
    expect_rows("graph g(x: f32[5,64], m: f32[5,64]) {\n  %a = add(x, m)\n  return softmax(%a, axis=-1)\n}\n");
}

}  // namespace
}  // namespace tessera::test::gpu_rows_test
