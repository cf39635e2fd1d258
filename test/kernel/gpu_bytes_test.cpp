// Products of bytes and of tf32 for blocks of threads, thread by thread: what they compute is what the evaluator gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_bytes_test {
namespace {

using Races = InterpretOptions::Races;
using testing::HasSubstr;
using testing::Not;

Program bytes_for_blocks(const std::string& text, const char* target, Precision precision) {
    LowerOptions options;
    options.machine = *describe_target(target);
    options.strict = precision == Precision::Strict;
    options.fast = precision == Precision::Fast;
    return lowered(text, options);
}

std::string text_of(const Program& program) {
    std::string text;
    for (const Kernel& k : program.kernels) text += to_string(k);
    return text;
}

// What its kernels say.
std::string expect_as_evaluated(const std::string& text, const char* target = "sm_90a",
                                Precision precision = Precision::Default) {
    SCOPED_TRACE(text);
    const auto graph = graph_of(text);
    const Inputs inputs = random_inputs(*graph, {}, 5);
    const auto want = evaluate(*graph, inputs);
    EXPECT_TRUE(want.ok()) << want.error().to_string();
    const Program program = bytes_for_blocks(text, target, precision);
    for (bool backwards : {false, true}) {
        const auto got = run_program(program, inputs, {.backwards = backwards, .races = Races::Find});
        EXPECT_TRUE(got.ok()) << got.error().to_string();
        for (size_t i = 0; got.ok() && i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    }
    return text_of(program);
}

// [m, k] times [n, k] turned, or times [k, n]; read as f32 or f16, or by scales.
struct BytesProduct {
    const char* dtype = "f8e4m3fn";
    int64_t m = 24, n = 72, k = 48;
    const char* as = "cast(%, to=10)";
    bool turned = true;
    const char* out = "  return %d\n";

    std::string text() const {
        auto read = [&](const char* name, const char* scale) {
            std::string made = as;
            made.replace(made.find('%'), 1, name);
            if (const size_t at = made.find('$'); at != std::string::npos) made.replace(at, 1, scale);
            return made;
        };
        return fmt::format(
            "graph g(x: {}[{},{}], w: {}[{},{}], s: f32[], t: f32[{}]) {{\n  %a = {}\n  %v = {}\n{}"
            "  %d = matmul(%a, {})\n{}}}\n",
            dtype, m, k, dtype, turned ? n : k, turned ? k : n, n, read("x", "s"), read("w", "s"),
            turned ? "  %b = transpose(%v, perm=[1,0])\n" : "", turned ? "%b" : "%v", out);
    }
};

TEST(GpuBytes, FloatsOf8BitsAreMultipliedAsTheyAre) {
    for (const char* as : {"cast(%, to=10)", "cast(%, to=16)", "cast(%, to=1)", "dequantize_linear(%, $)"}) {
        const std::string text = BytesProduct{.as = as}.text();
        EXPECT_THAT(expect_as_evaluated(text), HasSubstr("call wgmma_f8e4m3fn")) << text;
    }
    EXPECT_THAT(expect_as_evaluated(BytesProduct{.dtype = "f8e5m2", .m = 72, .n = 80, .k = 144}.text()),
                HasSubstr("call wgmma_f8e5m2"));
    // What follows, and a scale for each column.
    expect_as_evaluated(
        BytesProduct{.m = 128, .n = 192, .k = 32, .out = "  %e = relu(%d)\n  return cast(%e, to=1)\n"}.text());
    EXPECT_THAT(expect_as_evaluated("graph g(x: f8e4m3fn[72,64], w: f8e4m3fn[96,64], s: f32[], t: f32[96]) {\n"
                                    "  %a = dequantize_linear(x, s)\n  %b = dequantize_linear(w, t, axis=0)\n"
                                    "  %c = transpose(%b, perm=[1,0])\n  %d = matmul(%a, %c)\n"
                                    "  return cast(%d, to=16)\n}\n"),
                HasSubstr("call wgmma_f8e4m3fn"));
}

TEST(GpuBytes, FloatsOf8BitsOfTwoTypes) {
    for (const auto& [a, b] : {std::pair("f8e4m3fn", "f8e5m2"), std::pair("f8e5m2", "f8e4m3fn")}) {
        const std::string text = fmt::format(
            "graph g(x: {}[72,64], w: {}[96,64], s: f32[]) {{\n  %a = dequantize_linear(x, s)\n  %b = cast(w, to=1)\n"
            "  %c = transpose(%b, perm=[1,0])\n  return matmul(%a, %c)\n}}\n",
            a, b);
        EXPECT_THAT(expect_as_evaluated(text), HasSubstr(fmt::format("call wgmma_{}_{}_", a, b)));
        EXPECT_THAT(expect_as_evaluated(text, "sm_90"), HasSubstr("call mma_f16"));
    }
}

// Sums of floats of 8 bits have few digits there: where all are wanted, f16 is multiplied, which holds what 8 bits do.
TEST(GpuBytes, StrictSumsHaveAllDigits) {
    for (const char* as : {"cast(%, to=10)", "cast(%, to=1)"}) {
        const std::string text = BytesProduct{.as = as}.text();
        EXPECT_THAT(expect_as_evaluated(text, "sm_90a", Precision::Strict),
                    testing::AllOf(HasSubstr("mma_f16"), Not(HasSubstr("wgmma_f8"))));
        EXPECT_THAT(expect_as_evaluated(text, "sm_80"), HasSubstr("call mma_f16"));
    }
}

// Instructions take bytes that lie along what is added up: what is known is turned when it is loaded.
TEST(GpuBytes, KnownMatricesAreTurned) {
    const std::string given = BytesProduct{.turned = false}.text();
    EXPECT_THAT(expect_as_evaluated(given), testing::AllOf(HasSubstr("call mma_f16"), Not(HasSubstr("wgmma"))));
    std::string numbers;
    for (int i = 0; i < 64 * 96; ++i) numbers += fmt::format("{}{}", i ? "," : "", (i * i % 17) * 0.25 - 2);
    const std::string known = fmt::format(
        "graph g(x: f8e4m3fn[72,64]) {{\n  const w: f8e4m3fn[64,96] = [{}]\n  %a = cast(x, to=10)\n"
        "  %b = cast(w, to=10)\n  return matmul(%a, %b)\n}}\n",
        numbers);
    EXPECT_THAT(expect_as_evaluated(known), HasSubstr("call wgmma_f8e4m3fn"));
}

// Sums of bytes are exact, also where parts of k are added up by blocks of their own.
TEST(GpuBytes, BytesAreMultipliedAsTheyAre) {
    for (const char* dtype : {"i8", "u8"})
        for (const auto& [m, n, k] : {std::array{72, 80, 144}, std::array{64, 64, 2048}}) {
            const std::string text = fmt::format(
                "graph g(x: {0}[{1},{3}], w: {0}[{2},{3}]) {{\n  %b = transpose(w, perm=[1,0])\n"
                "  return matmul_integer(x, %b)\n}}\n",
                dtype, m, n, k);
            const std::string made = expect_as_evaluated(text);
            EXPECT_THAT(made, HasSubstr(fmt::format("call wgmma_{}", dtype))) << text;
            if (k > 1000) {
                EXPECT_THAT(made, HasSubstr("partial: i32")) << text;
            }
        }
    // What is not known does not lie along k: warps multiply it.
    EXPECT_THAT(expect_as_evaluated("graph g(x: i8[72,64], w: i8[64,80]) {\n  return matmul_integer(x, w)\n}\n"),
                testing::AllOf(Not(HasSubstr("wgmma")), HasSubstr("call mma_i8_")));
    std::string numbers;
    for (int i = 0; i < 64 * 96; ++i) numbers += fmt::format("{}{}", i ? "," : "", i * i % 251 - 125);
    EXPECT_THAT(expect_as_evaluated(fmt::format("graph g(x: i8[72,64]) {{\n  const w: i8[64,96] = [{}]\n"
                                                "  return matmul_integer(x, w)\n}}\n",
                                                numbers)),
                HasSubstr("call wgmma_i8"));
}

// Whichever way they lie, of any sign each, and of sizes that fill no vectors.
TEST(GpuBytes, WarpsMultiplyBytes) {
    struct Types {
        const char *a, *b, *call;
    };
    const Types types[] = {
        {"i8", "i8", "mma_i8_"}, {"u8", "u8", "mma_u8_"}, {"i8", "u8", "mma_i8_u8_"}, {"u8", "i8", "mma_u8_i8_"}};
    size_t next = 0;
    for (const auto& [m, n, k] :
         {std::array{72, 80, 144}, std::array{64, 36, 100}, std::array{17, 19, 33}, std::array{130, 68, 20}}) {
        for (int turned : {0, 1, 2, 3}) {
            const auto& [a, b, call] = types[next++ % 4];
            const bool left = turned & 1, right = turned & 2;
            const std::string text = fmt::format(
                "graph g(x: {}[{},{}], w: {}[{},{}]) {{\n{}{}  return matmul_integer({}, {})\n}}\n", a, left ? k : m,
                left ? m : k, b, right ? n : k, right ? k : n, left ? "  %a = transpose(x, perm=[1,0])\n" : "",
                right ? "  %b = transpose(w, perm=[1,0])\n" : "", left ? "%a" : "x", right ? "%b" : "w");
            EXPECT_THAT(expect_as_evaluated(text, turned == 1 ? "sm_90" : "sm_80"),
                        HasSubstr(fmt::format("call {}", call)))
                << text;
        }
        ++next;  // other types for the next sizes
    }
    const std::string parts = "graph g(x: i8[64,2048], w: u8[2048,64]) {\n  return matmul_integer(x, w)\n}\n";
    EXPECT_THAT(expect_as_evaluated(parts, "sm_80"), HasSubstr("partial: i32"));
    const std::string batch = "graph g(x: u8[3,24,40], w: i8[3,40,32]) {\n  return matmul_integer(x, w)\n}\n";
    EXPECT_THAT(expect_as_evaluated(batch, "sm_80"), HasSubstr("call mma_u8_i8_"));
}

// Windows are read where they stand; what is beside the image is 0.
TEST(GpuBytes, WarpsMultiplyWindowsOfBytes) {
    for (const char* window : {"pads=[1,1,1,1]", "pads=[1,0,2,1], strides=[2,1]", "dilations=[2,2], pads=[1,1,1,1]"})
        for (const auto& [channels, outputs] : {std::array{64, 48}, std::array{32, 20}, std::array{3, 32}}) {
            const std::string text =
                fmt::format("graph g(x: u8[2,{0},7,5], w: i8[{1},{0},3,3]) {{\n  return conv_integer(x, w, {2})\n}}\n",
                            channels, outputs, window);
            EXPECT_THAT(expect_as_evaluated(text, "sm_80"), HasSubstr("call mma_")) << text;
        }
}

// Sums of bytes less zero points are sums of bytes, from which sums of the others come off.
TEST(GpuBytes, ZeroPoints) {
    struct Zeros {
        const char *of_a, *of_b;
    };
    for (const auto& [a, b] : {Zeros{"[]", "[]"}, {"[1]", "[36]"}, {"[24]", "[36]"}, {"[24,1]", "[1,36]"}}) {
        const std::string inputs = fmt::format("graph g(x: u8[24,40], w: i8[40,36], p: u8{}, q: i8{}) {{\n", a, b);
        for (const char* product :
             {"matmul_integer(x, w, p, q)", "matmul_integer(x, w, p)", "matmul_integer(x, w, _, q)"})
            EXPECT_THAT(expect_as_evaluated(fmt::format("{}  return {}\n}}\n", inputs, product), "sm_80"),
                        HasSubstr("call mma_u8_i8_"));
    }
    // One that changes along k stays where it is.
    EXPECT_THAT(expect_as_evaluated("graph g(x: u8[24,40], w: i8[40,36], p: u8[24,40]) {\n"
                                    "  return matmul_integer(x, w, p)\n}\n"),
                Not(HasSubstr("mma")));
    EXPECT_THAT(expect_as_evaluated("graph g(x: u8[24,40], w: u8[40,40], p: u8[], q: u8[40], s: f32[40], z: u8[]) {\n"
                                    "  return qlinear_matmul(x, 0.5, p, w, s, q, 200.0, z)\n}\n",
                                    "sm_80"),
                HasSubstr("call mma_u8_"));
    for (const auto& [target, w_zero] : {std::pair("sm_80", "q"), std::pair("sm_90a", "none")}) {
        const std::string text = fmt::format(
            "graph g(x: u8[1,32,7,6], w: i8[40,32,3,3], p: u8[], q: i8[40], s: f32[40], z: i8[], b: i32[40]) {{\n"
            "  const none: i8[1] = [0]\n"
            "  return qlinear_conv(x, 0.5, p, w, s, {}, 300.0, z, b, pads=[1,1,1,1])\n}}\n",
            w_zero);
        EXPECT_THAT(expect_as_evaluated(text, target), HasSubstr("call mma_")) << text;
    }
}

// So on machines that multiply bytes by four warps.
TEST(GpuBytes, BytesOfTwoSignsWithZeroPoints) {
    for (const auto& [a, b] : {std::pair("i8", "u8"), std::pair("u8", "i8")})
        for (const char* zeros : {"", ", p", ", _, q", ", p, q"}) {
            const std::string text = fmt::format(
                "graph g(x: {0}[72,144], w: {1}[80,144], p: {0}[], q: {1}[80]) {{\n  %b = transpose(w, perm=[1,0])\n"
                "  return matmul_integer(x, %b{2})\n}}\n",
                a, b, zeros);
            EXPECT_THAT(expect_as_evaluated(text), HasSubstr(fmt::format("call wgmma_{}_{}_", a, b)));
            EXPECT_THAT(text_of(bytes_for_blocks(text, "sm_90a_ptx80", Precision::Default)),
                        HasSubstr(fmt::format("call mma_{}_{}_", a, b)));
        }
}

// Dequantized tensors are multiplied as the bytes that they were.
TEST(GpuBytes, DequantizedTensors) {
    for (const char* target : {"sm_80", "sm_90a"})
        EXPECT_THAT(expect_as_evaluated("graph g(x: u8[24,64], w: i8[64,40], p: u8[], s: f32[40], z: u8[]) {\n"
                                        "  %a = dequantize_linear(x, 0.01, p)\n  %b = dequantize_linear(w, s, axis=1)\n"
                                        "  %c = matmul(%a, %b)\n  return relu(%c)\n}\n",
                                        target),
                    HasSubstr("call mma_u8_i8"));
}

// Sums of known weights are made when they are loaded.
TEST(GpuBytes, SumsOfWeightsAreKnown) {
    for (int k : {64, 640}) {
        std::string numbers;
        for (int i = 0; i < k * 96; ++i) numbers += fmt::format("{}{}", i ? "," : "", i * 37 % 251 - 125);
        const std::string text = fmt::format(
            "graph g(x: u8[72,{0}], p: u8[]) {{\n  const w: i8[{0},96] = [{1}]\n  return matmul_integer(x, w, p)\n}}\n",
            k, numbers);
        EXPECT_THAT(expect_as_evaluated(text), HasSubstr("call wgmma_u8_i8_"));
        const Program program = bytes_for_blocks(text, "sm_90a", Precision::Default);
        EXPECT_EQ(program.steps.size(), 1u);
        EXPECT_GE(program.prepare.size(), 2u);  // another turns them
    }
}

// An axis of one element between the others, and what follows.
TEST(GpuBytes, RowsOfOneElementEach) {
    const auto graph = graph_of(
        "graph g(x: f32[N,1,64], w: i8[64,40], p: u8[], c: i32[40]) {\n  %q = quantize_linear(x, 0.02, p)\n"
        "  %m = matmul_integer(%q, w, p)\n  return add(%m, c)\n}\n");
    const Inputs inputs = random_inputs(*graph, {{"N", 37}}, 3);
    LowerOptions options;
    options.machine = *describe_target("sm_80");
    const auto program = from_graph(graph, options);
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    EXPECT_THAT(text_of(*program), HasSubstr("call mma_u8_i8"));
    const auto want = evaluate(*graph, inputs), got = run_program(*program, inputs, {.races = Races::Find});
    ASSERT_TRUE(want.ok() && got.ok());
    expect_close((*got)[0], (*want)[0]);
}

// Where operands of f32 may lose digits, matrix instructions take them.
TEST(GpuBytes, FastProductsOfF32) {
    const std::string along = BytesProduct{.dtype = "f32", .as = "cast(%, to=1)"}.text(),
                      across = BytesProduct{.dtype = "f32", .as = "cast(%, to=1)", .turned = false}.text();
    for (const std::string& text : {along, across}) {
        EXPECT_THAT(expect_as_evaluated(text), Not(HasSubstr("mma")));
        EXPECT_THAT(expect_as_evaluated(text, "sm_80", Precision::Fast), HasSubstr("call mma_f32"));
    }
    EXPECT_THAT(expect_as_evaluated(along, "sm_90a", Precision::Fast), HasSubstr("call wgmma_f32"));
    EXPECT_THAT(expect_as_evaluated(across, "sm_90a", Precision::Fast), HasSubstr("call mma_f32"));
}

}  // namespace
}  // namespace tessera::test::gpu_bytes_test
