// Kernels for blocks of threads, thread by thread: what they compute is what the evaluator gives, in any order of
// blocks and threads, and no two of them touch one element at the same time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/gpu/contraction_kernel.h"
#include "kernel/gpu/wgmma_kernel.h"
#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"
#include "rewrite/passes/lowering_passes.h"

namespace tessera::test::gpu_test {
namespace {

using Races = InterpretOptions::Races;

const Machine kH200 = *describe_target("sm_90a");

Program for_blocks(std::string_view text, const char* target = "sm_90") {
    LowerOptions options;
    options.machine = *describe_target(target);
    auto program = from_graph(graph_of(text), options);
    EXPECT_TRUE(program.ok()) << program.error().to_string();
    return std::move(*program);
}

std::string kernels_of(const Program& program) {
    std::string text;
    for (const Kernel& k : program.kernels) text += to_string(k);
    return text;
}

void expect_in_any_order(const std::string& text, const SymbolValues& symbols = {}, unsigned seed = 5,
                         const char* target = "sm_90") {
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, text));
    auto graph = graph_of(text);
    const Inputs inputs = random_inputs(*graph, symbols, seed);
    auto want = evaluate(*graph, inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    const Program program = for_blocks(text, target);
    for (bool backwards : {false, true}) {
        auto got = run_program(program, inputs, {.backwards = backwards, .races = Races::Find});
        ASSERT_TRUE(got.ok()) << got.error().to_string() << "\n" << kernels_of(program);
        for (size_t i = 0; i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    }
}

TEST(Gpu, MapsAreThreads) {
    for (const char* shape : {"7", "64", "3,5", "2,3,8"})
        expect_in_any_order(fmt::format("graph g(a: f32[{0}], b: f32[{0}]) {{\n  return add(a, b)\n}}\n", shape));
    expect_in_any_order("graph g(a: f16[4,N], b: f16[N]) {\n  return mul(a, b)\n}\n", {{"N", 13}});
    EXPECT_THAT(kernels_of(for_blocks("graph g(a: f32[4,64]) {\n  return exp(a)\n}\n")), testing::HasSubstr("vector"));
}

TEST(Gpu, RowsAreSharedByBlocks) {
    for (int64_t length : {64, 100, 128, 1024})
        for (const char* dtype : {"f32", "f16"})
            expect_in_any_order(
                fmt::format("graph g(x: {}[3,{}]) {{\n  return softmax(x, axis=-1)\n}}\n", dtype, length));
    expect_in_any_order("graph g(x: f32[2,3,N]) {\n  return softmax(x, axis=-1)\n}\n", {{"N", 70}});
    // Too long to be kept: what is read twice is computed twice.
    expect_in_any_order("graph g(x: f32[2,12288]) {\n  return softmax(x, axis=-1)\n}\n");
    expect_in_any_order(
        "graph g(x: f32[2,256], s: f32[256], b: f32[256]) {\n  return layer_normalization(x, s, b)\n}\n");
    EXPECT_THAT(kernels_of(for_blocks("graph g(x: f32[8,512]) {\n  return softmax(x, axis=-1)\n}\n")),
                testing::AllOf(testing::HasSubstr("on block.x"), testing::HasSubstr("shared")));
}

// Many short rows: a block takes several, each with threads of its own.
TEST(Gpu, ShortRowsShareABlock) {
    expect_in_any_order("graph g(x: f16[2048,64]) {\n  return softmax(x, axis=-1)\n}\n");
    expect_in_any_order("graph g(x: f32[2,2049,72]) {\n  return reduce_max(x, [2], keepdims=0)\n}\n");
    expect_in_any_order(
        "graph g(x: f32[2050,64], s: f32[64], b: f32[64]) {\n  return layer_normalization(x, s, b)\n}\n");
    EXPECT_THAT(kernels_of(for_blocks("graph g(x: f16[8192,1024]) {\n  return softmax(x, axis=-1)\n}\n")),
                testing::AllOf(testing::HasSubstr("< 2048 on block.x"), testing::HasSubstr("< 4 on thread.y"),
                               testing::HasSubstr("f32[1, 4, 32, 32] shared")));
    // Fewer rows, and long ones, have a block each.
    for (const char* shape : {"1024,1024", "8192,4096"})
        EXPECT_THAT(
            kernels_of(for_blocks(fmt::format("graph g(x: f16[{}]) {{\n  return softmax(x, axis=-1)\n}}\n", shape))),
            testing::Not(testing::HasSubstr("thread.y")));
}

// What one thread alone touches has a place for each thread, in f32, and is not rounded on the way.
TEST(Gpu, WhatIsKeptOfRowsStaysWithItsThread) {
    for (const char* dtype : {"f16", "bf16"})
        for (int64_t length : {64, 256, 768, 2048, 8192, 12288})
            expect_in_any_order(
                fmt::format("graph g(x: {}[2,{}]) {{\n  return softmax(x, axis=-1)\n}}\n", dtype, length));
    expect_in_any_order(
        "graph g(x: f16[2,768], s: f16[768], b: f16[768]) {\n  return layer_normalization(x, s, b)\n}\n");
    expect_in_any_order("graph g(x: f16[3,7,256]) {\n  %0 = softmax(x, axis=-1)\n  return reduce_sum(%0, [2])\n}\n");
    const std::string kernel = kernels_of(for_blocks("graph g(x: f16[8,1024]) {\n  return softmax(x, axis=-1)\n}\n"));
    EXPECT_THAT(kernel, testing::AllOf(testing::HasSubstr("f32[1, 1, 128, 8] shared"), testing::HasSubstr("pow(2.0")));
    EXPECT_THAT(kernel, testing::Not(testing::HasSubstr("f32(f16(")));
}

TEST(Gpu, TranspositionsAreSquares) {
    for (const char* shape : {"32,32", "96,100", "33,40"})
        expect_in_any_order(fmt::format("graph g(x: f32[{}]) {{\n  return transpose(x, perm=[1,0])\n}}\n", shape));
    expect_in_any_order("graph g(x: f16[3,70,N]) {\n  %0 = transpose(x, perm=[0,2,1])\n  return relu(%0)\n}\n",
                        {{"N", 37}});
    EXPECT_THAT(kernels_of(for_blocks("graph g(x: f32[64,64]) {\n  return transpose(x, perm=[1,0])\n}\n")),
                testing::HasSubstr("strides [33, 1] shared"));
}

TEST(Gpu, FewRowsAreReadInVectors) {
    for (int64_t rows : {1, 3})
        for (auto [k, n] : {std::pair{64, 256}, std::pair{512, 264}, std::pair{520, 512}}) {
            const std::string text = fmt::format(
                "graph g(a: bf16[{0},{1}], b: bf16[{1},{2}], c: bf16[{2}]) {{\n  %0 = matmul(a, b)\n  %1 = add(%0, "
                "c)\n  return relu(%1)\n}}\n",
                rows, k, n);
            EXPECT_THAT(kernels_of(for_blocks(text)), testing::HasSubstr("vector lane_sum < 8")) << text;
            expect_in_any_order(text);
        }
}

TEST(Gpu, LongReductionsOfFewElementsAreCut) {
    expect_in_any_order("graph g(x: f32[700,33]) {\n  return reduce_sum(x, [0], keepdims=0)\n}\n");
    expect_in_any_order("graph g(x: f32[70,33,7]) {\n  return reduce_max(x, [0,2], keepdims=1)\n}\n");
    expect_in_any_order("graph g(x: f32[40,50]) {\n  return reduce_sum(x, [0,1], keepdims=0)\n}\n");
}

// One result, or few: many blocks have a part of each.
TEST(Gpu, FewResultsAreOfManyBlocks) {
    for (const char* text : {"graph g(x: f32[40000]) {\n  return reduce_sum(x, [0], keepdims=0)\n}\n",
                             "graph g(x: f32[3,40001]) {\n  return reduce_max(x, [1], keepdims=0)\n}\n",
                             "graph g(x: f16[257,300]) {\n  return reduce_mean(x, [0,1], keepdims=0)\n}\n",
                             "graph g(x: i64[3,4,20011]) {\n  return reduce_min(x, [0,1,2], keepdims=1)\n}\n",
                             "graph g(x: f32[40000]) {\n  return arg_max(x, axis=0, keepdims=0)\n}\n",
                             "graph g(x: f32[2,33000]) {\n  return softmax(x, axis=-1)\n}\n",
                             "graph g(x: f32[100]) {\n  return reduce_sum(x, [0], keepdims=0)\n}\n"}) {
        expect_in_any_order(text);
        EXPECT_THAT(kernels_of(for_blocks(text)), testing::HasSubstr("on block.x")) << text;
    }
    for (int64_t n : {0, 1, 63, 64, 65, 9001})
        expect_in_any_order("graph g(x: f32[N,2]) {\n  return reduce_sum(x, [0,1], keepdims=0)\n}\n", {{"N", n}});
    EXPECT_THAT(kernels_of(for_blocks("graph g(x: f32[1048576]) {\n  return reduce_sum(x, [0], keepdims=0)\n}\n")),
                testing::HasSubstr("< 256 on block.x"));
}

TEST(Gpu, ProductsAreTiles) {
    struct Sizes3 {
        int64_t m, n, k;
    };
    for (const Sizes3& s : {Sizes3{16, 16, 16}, {33, 47, 21}, {64, 80, 40}, {17, 130, 8}, {100, 16, 65}})
        for (const char* dtype : {"f32", "f16", "bf16"})
            for (bool transposed : {false, true}) {
                const std::string b = transposed ? fmt::format("{},{}", s.n, s.k) : fmt::format("{},{}", s.k, s.n);
                expect_in_any_order(
                    fmt::format("graph g(a: {0}[{1},{2}], b: {0}[{3}], c: {0}[{4}]) {{\n{5}"
                                "  %0 = matmul(a, {6})\n  %1 = add(%0, c)\n  return relu(%1)\n}}\n",
                                dtype, s.m, s.k, b, s.n, transposed ? "  %t = transpose(b, perm=[1,0])\n" : "",
                                transposed ? "%t" : "b"));
            }
    expect_in_any_order("graph g(a: f32[3,N,20], b: f32[3,20,24]) {\n  return matmul(a, b)\n}\n", {{"N", 19}});
}

// Where nothing is added up, nothing is read.
TEST(Gpu, SumsOfNothing) {
    for (const char* dtype : {"f32", "f16", "f64"}) {
        for (const char* target : {"sm_80", "sm_90a"}) {
            for (int64_t rows : {7, 72})
                for (const char* b : {"b: {0}[0,96]) {{\n  return matmul(a, b)\n}}\n",
                                      "b: {0}[96,0]) {{\n  %t = transpose(b)\n  return matmul(a, %t)\n}}\n"})
                    expect_in_any_order(
                        fmt::format(fmt::runtime("graph g(a: {0}[{1},0], " + std::string(b)), dtype, rows), {}, 5,
                        target);
            for (const char* to : {"nbk", "bkn"}) {
                const char* shape = to[0] == 'n' ? "96,B,64" : "B,64,96";
                for (int64_t b : {0, 2})
                    expect_in_any_order(fmt::format("graph g(a: {0}[24,B,64], b: {0}[{1}]) {{\n  return einsum(a, b, "
                                                    "equation=\"mbk,{2}->mn\")\n}}\n",
                                                    dtype, shape, to),
                                        {{"B", b}}, 5, target);
            }
            expect_in_any_order(
                fmt::format("graph g(x: {0}[2,0,6,6], w: {0}[32,0,3,3]) {{\n  return conv(x, w)\n}}\n", dtype), {}, 5,
                target);
        }
    }
    expect_in_any_order("graph g(a: i8[72,0], b: u8[0,96], p: i8[]) {\n  return matmul_integer(a, b, p)\n}\n");
}

TEST(Gpu, ConvolutionsAreTiles) {
    for (const char* dtype : {"f32", "f16"})
        for (int64_t channels : {3, 32, 40})
            for (const char* more : {"", ", pads=[1,1,1,1]", ", strides=[2,2]"})
                expect_in_any_order(
                    fmt::format("graph g(x: {0}[2,{1},7,9], w: {0}[18,{1},3,3], b: {0}[18]) {{\n"
                                "  %0 = conv(x, w, b{2})\n  return relu(%0)\n}}\n",
                                dtype, channels, more));
}

// Columns of several images do not lie together: each image has tiles of its own where that is needed.
TEST(Gpu, ConvolutionsOfSeveralImagesAreTiles) {
    for (const char* size : {"7,8", "8,8"}) {
        const std::string text = fmt::format(
            "graph g(x: f16[2,64,{0}], w: f16[72,64,1,1], b: f16[72]) {{\n  %0 = conv(x, w, b)\n  return "
            "relu(%0)\n}}\n",
            size);
        EXPECT_THAT(kernels_of(for_blocks(text, "sm_90")), testing::HasSubstr("call mma")) << text;
        expect_in_any_order(text);
        expect_in_any_order(text, {}, 5, "sm_90a");
    }
    EXPECT_THAT(
        kernels_of(for_blocks("graph g(x: f16[2,64,8,8], w: f16[72,64,1,1]) {\n  return conv(x, w)\n}\n", "sm_90a")),
        testing::HasSubstr("call wgmma"));
    EXPECT_THAT(kernels_of(for_blocks("graph g(x: f16[4,64,28,28], w: f16[64,64,1,1]) {\n  return conv(x, w)\n}\n")),
                testing::HasSubstr("call mma"));
}

// The hardware counts the places of a window, and fills in zeros outside of the images.
TEST(Gpu, WindowsAreCopiedByPlaces) {
    struct Sizes4 {
        const char *images, *window, *more;
        const char* dtype = "f16";
    };
    for (const Sizes4& s :
         {Sizes4{"2,6,6,64", "3,3,64,64", "pads=[1,1,1,1]"}, Sizes4{"1,9,8,64", "3,3,64,72", "pads=[1,1,1,1]", "bf16"},
          Sizes4{"3,9,10,48", "3,2,48,64", "pads=[1,0,2,1], strides=[2,2]"},
          Sizes4{"2,13,12,64", "1,1,64,64", "strides=[2,2]"},
          Sizes4{"2,9,9,64", "2,2,64,64", "dilations=[2,3], pads=[1,1,0,2]"}}) {
        const std::string text = fmt::format(
            "graph g(x: {3}[{0}], w: {3}[{1}]) {{\n  %0 = transpose(x, perm=[0,3,1,2])\n  %1 = transpose(w, "
            "perm=[3,2,0,1])\n  %2 = conv(%0, %1, {2})\n  %3 = relu(%2)\n  return transpose(%3, "
            "perm=[0,2,3,1])\n}}\n",
            s.images, s.window, s.more, s.dtype);
        EXPECT_THAT(kernels_of(for_blocks(text, "sm_90a")), testing::HasSubstr("call copy_places")) << text;
        expect_in_any_order(text, {}, 5, "sm_90a");
    }
    // Channels that fill no tile, or begin nowhere that the hardware can read.
    for (const char* channels : {"24", "68"})
        EXPECT_THAT(kernels_of(for_blocks(
                        fmt::format("graph g(x: f16[2,8,8,{0}], w: f16[3,3,{0},64]) {{\n  %0 = transpose(x, "
                                    "perm=[0,3,1,2])\n  %1 = transpose(w, perm=[3,2,0,1])\n  %2 = conv(%0, %1)\n  "
                                    "return transpose(%2, perm=[0,2,3,1])\n}}\n",
                                    channels),
                        "sm_90a")),
                    testing::Not(testing::HasSubstr("copy_places")));
}

// Weights of 1x1 windows that pass channels on as they are.
Tensor choosing(int64_t outputs, int64_t channels) {
    Tensor made = *Tensor::zeros(DType::f16, {outputs, channels, 1, 1});
    for (int64_t o = 0; o < outputs; ++o) made.set_real(o * channels + o * 5 % channels, 1);
    return made;
}

// Groups of few channels are joined to such as fill tiles, and each of those reads its own channels.
TEST(Gpu, GroupsOfFewChannelsAreJoined) {
    struct Groups {
        const char* more;
        int64_t filters, channels;
        const char* tile;  // the first of its channels
    };
    for (const auto& [more, filters, channels, tile] : {Groups{"pads=[1,1,1,1], group=32", 128, 4, "64*block_b]"},
                                                        {"strides=[2,2], group=16", 128, 8, "64*block_b]"},
                                                        {"pads=[1,1,1,1], group=13", 104, 8, "copy_places"},
                                                        {"group=6", 48, 8, "copy_places"}}) {
        SCOPED_TRACE(more);
        Tensor weights = *Tensor::zeros(DType::f16, {filters, channels, 3, 3});
        for (int64_t i = 0; i < weights.elements(); ++i) weights.set_real(i, double(i * 7 % 19 - 9) / 16);
        auto parsed = parse(
            fmt::format("graph g(x: f16[2,64,9,8], w: f16[{0},{1},3,3], v: f16[{0},64,1,1], u: f16[64,{0},1,1]) {{\n"
                        "  %0 = conv(x, v)\n  %1 = conv(%0, w, {2})\n  %2 = relu(%1)\n  return conv(%2, u)\n}}\n",
                        filters, channels, more));
        ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
        std::shared_ptr<Graph> graph(std::move(*parsed));
        Value* w = graph->inputs()[1].get();
        graph->replace_uses(w, graph->constant(weights));
        Inputs inputs = random_inputs(*graph, {}, 7);
        inputs["v"] = Datum(choosing(filters, 64)), inputs["u"] = Datum(choosing(64, filters));
        auto want = evaluate(*graph, inputs);
        ASSERT_TRUE(want.ok()) << want.error().to_string();
        const Machine machine = *describe_target("sm_90a");
        PassContext context;
        auto joined = join_groups(*graph, machine, context);
        ASSERT_TRUE(joined.ok() && *joined);
        auto same = evaluate(*graph, inputs);
        ASSERT_TRUE(same.ok()) << same.error().to_string();
        expect_close((*same)[0], (*want)[0]);
        LowerOptions options;
        options.machine = machine;
        auto program = from_graph(graph, options);
        ASSERT_TRUE(program.ok()) << program.error().to_string();
        EXPECT_THAT(kernels_of(*program), testing::HasSubstr(tile));
        auto got = run_program(*program, inputs, {.races = Races::Find});
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        expect_close((*got)[0], (*want)[0]);
    }
}

// Windows of few elements: a thread has a vector of neighbours, and what is made of them.
TEST(Gpu, WindowsStayWithTheirThreads) {
    for (const char* dtype : {"f16", "f32"})
        for (const char* op :
             {"max_pool(%0, kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1])",
              "average_pool(%0, kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=0)",
              "conv(%0, w, b, group=24, pads=[1,1,1,1])", "conv(%0, w, b, group=24, strides=[2,2], pads=[0,1,1,0])"}) {
            const std::string text = fmt::format(
                "graph g(x: {0}[2,7,6,24], w: {0}[24,1,3,3], b: {0}[24]) {{\n  %0 = transpose(x, perm=[0,3,1,2])\n"
                "  %1 = {1}\n  %2 = relu(%1)\n  return transpose(%2, perm=[0,2,3,1])\n}}\n",
                dtype, op);
            expect_in_any_order(text);
        }
    expect_in_any_order(
        "graph g(x: f16[1,5,9,7]) {\n  %0 = average_pool(x, kernel_shape=[3,3])\n  return relu(%0)\n}\n");
    const std::string pooled =
        kernels_of(for_blocks("graph g(x: f16[2,8,8,64]) {\n  %0 = transpose(x, perm=[0,3,1,2])\n  %1 = max_pool(%0, "
                              "kernel_shape=[2,2])\n  return transpose(%1, perm=[0,2,3,1])\n}\n"));
    EXPECT_EQ(pooled.find("parallel"), pooled.rfind("parallel")) << pooled;
    EXPECT_THAT(pooled, testing::HasSubstr("< 8 {")) << pooled;
}

TEST(Gpu, MatrixInstructionsTakeTilesOf16Bits) {
    const std::string text =
        kernels_of(for_blocks("graph g(a: f16[64,64], b: f16[64,64]) {\n  return matmul(a, b)\n}\n"));
    EXPECT_THAT(text, testing::HasSubstr("call mma_f16_64x64"));
    EXPECT_THAT(kernels_of(for_blocks("graph g(a: f32[64,64], b: f32[64,64]) {\n  return matmul(a, b)\n}\n")),
                testing::Not(testing::HasSubstr("call mma")));
}

TEST(Gpu, WideMatrixInstructionsReadTilesThatAreCopiedAhead) {
    struct Sizes3 {
        int64_t m, n, k;
    };
    for (const Sizes3& s : {Sizes3{72, 136, 104}, {128, 64, 8}})
        for (const char* dtype : {"f16", "bf16"})
            for (int turned : {0, 1, 2, 3}) {
                const bool a = turned & 1, b = turned & 2;
                const std::string text = fmt::format(
                    "graph g(a: {0}[{1}], b: {0}[{2}], c: {0}[{3}]) {{\n{4}{5}"
                    "  %0 = matmul({6}, {7})\n  %1 = add(%0, c)\n  return relu(%1)\n}}\n",
                    dtype, a ? fmt::format("{},{}", s.k, s.m) : fmt::format("{},{}", s.m, s.k),
                    b ? fmt::format("{},{}", s.n, s.k) : fmt::format("{},{}", s.k, s.n), s.n,
                    a ? "  %x = transpose(a, perm=[1,0])\n" : "", b ? "  %y = transpose(b, perm=[1,0])\n" : "",
                    a ? "%x" : "a", b ? "%y" : "b");
                EXPECT_THAT(kernels_of(for_blocks(text, "sm_90a")), testing::HasSubstr("call wgmma")) << text;
                expect_in_any_order(text, {}, 5, "sm_90a");
            }
    // Batches, rows of several dimensions, sizes that are not known, an output of 32 bits.
    for (const char* text : {"graph g(a: f16[2,72,64], b: f16[2,64,80]) {\n  return matmul(a, b)\n}\n",
                             "graph g(a: f16[3,N,64], b: f16[64,72]) {\n  return matmul(a, b)\n}\n",
                             "graph g(a: bf16[80,72], b: bf16[72,64]) {\n  %0 = cast(a, to=1)\n  %1 = cast(b, to=1)\n"
                             "  return matmul(%0, %1)\n}\n"}) {
        EXPECT_THAT(kernels_of(for_blocks(text, "sm_90a")), testing::HasSubstr("call wgmma")) << text;
        expect_in_any_order(text, {{"N", 30}}, 5, "sm_90a");
    }
    // Rows of the output that begin anywhere are stored line by line.
    expect_in_any_order(
        "graph g(a: f16[72,64], b: f16[131,64], c: f16[131]) {\n  %y = transpose(b, perm=[1,0])\n"
        "  %0 = matmul(a, %y)\n  return add(%0, c)\n}\n",
        {}, 5, "sm_90a");
    // Rows that begin anywhere cannot be copied so, and few steps are not worth packing them.
    EXPECT_THAT(kernels_of(for_blocks("graph g(a: f16[64,19], b: f16[19,64]) {\n  return matmul(a, b)\n}\n", "sm_90a")),
                testing::HasSubstr("call mma"));
}

// Few tiles and a long k: parts of it are added up by blocks of their own, and then together.
TEST(Gpu, LongProductsOfFewTilesAreCut) {
    for (int64_t rows : {16, 72}) {
        const std::string text = fmt::format(
            "graph g(a: f16[{},2040], b: f16[2040,64], c: f16[64]) {{\n  %0 = matmul(a, b)\n  %1 = add(%0, c)\n"
            "  return relu(%1)\n}}\n",
            rows);
        EXPECT_THAT(kernels_of(for_blocks(text, "sm_90a")),
                    testing::AllOf(testing::HasSubstr("call wgmma"), testing::HasSubstr("on block.z")));
        expect_in_any_order(text, {}, 5, "sm_90a");
    }
    // So are convolutions of one image, and products that are copied by threads.
    for (const char* target : {"sm_90", "sm_90a"}) {
        const std::string text =
            "graph g(x: f16[1,64,7,7], w: f16[24,64,3,3], b: f16[24]) {\n  %0 = conv(x, w, b, pads=[1,1,1,1])\n"
            "  return relu(%0)\n}\n";
        EXPECT_THAT(kernels_of(for_blocks(text, target)),
                    testing::AllOf(testing::HasSubstr("call mma"), testing::HasSubstr("part < 2 on block.z")));
        expect_in_any_order(text, {}, 5, target);
    }
    EXPECT_EQ(choose_parts(kH200, {128, 128, 64}, 1, 4096, 4096, 64), 1);
    EXPECT_EQ(choose_parts(kH200, {64, 64, 64}, 1, 64, 4096, 64), 4);
    // Of matrix instructions of four warps: the largest tiles for large products, smaller ones and parts for small.
    for (const auto& [m, n, steps, tile_m, tile_n, parts] :
         std::vector<std::array<int64_t, 6>>{{4096, 4096, 64, 128, 128, 1},
                                             {1024, 1024, 16, 64, 128, 1},
                                             {64, 4096, 64, 64, 64, 1},
                                             {128, 768, 48, 64, 64, 4},
                                             {3072, 768, 48, 128, 192, 1},
                                             {4096, 16384, 64, 128, 192, 1}}) {
        const WgmmaShape shape = choose_wgmma(kH200, {.m = m, .n = n, .steps = steps});
        EXPECT_EQ(shape.tile.m, tile_m) << m;
        EXPECT_EQ(shape.tile.n, tile_n) << m;
        EXPECT_EQ(shape.parts, parts) << m;
    }
    // What follows takes longer than a short product: with smaller tiles it ends earlier.
    EXPECT_EQ(choose_wgmma(kH200, {.m = 1024, .n = 3072, .steps = 12, .end = 1.85}).tile, (BlockTile{64, 192, 64}));
    // Tiles of f32 come later, and larger ones are worth more.
    EXPECT_EQ(choose_wgmma(kH200, {.m = 4096, .n = 4096, .steps = 128, .dtype = DType::f32}).tile,
              (BlockTile{128, 192, 32}));
    // Two multiprocessors share a tile where one alone would read long, and there are enough of them.
    auto together = [](int64_t m, int64_t n, int64_t steps, bool may_share = true) {
        return choose_wgmma(kH200, {.m = m, .n = n, .steps = steps, .may_share = may_share}).together;
    };
    EXPECT_EQ(together(64, 4096, 64), 2);
    EXPECT_EQ(together(64, 4096, 64, false), 1);
    EXPECT_EQ(together(128, 1024, 16), 2);
    EXPECT_EQ(together(16, 4096, 64), 1);
    EXPECT_EQ(together(128, 3072, 48), 1);
    EXPECT_EQ(together(128, 768, 12), 1);
    EXPECT_EQ(choose_parts(kH200, {64, 64, 32}, 1, 512, 49, 144), 16);
}

// A card with other than the usual number of SMs has a target of its own, and other tiles.
TEST(Gpu, TilesFollowTheNumberOfSms) {
    const Machine fewer = *describe_target("sm_90a:66");
    EXPECT_EQ(fewer.cores, 66);
    EXPECT_EQ(kH200.cores, 132);
    EXPECT_DOUBLE_EQ(2 * fewer.flops, kH200.flops);
    EXPECT_EQ(fewer.bandwidth, kH200.bandwidth);
    EXPECT_EQ(fewer.shared_bytes, kH200.shared_bytes);
    EXPECT_EQ(choose_parts(fewer, {64, 64, 64}, 1, 64, 4096, 64), 2);
    EXPECT_EQ(choose_wgmma(fewer, {.m = 128, .n = 4096, .steps = 64, .may_share = true}).together, 1);
    for (const char* wrong : {"sm_90a:", "sm_90a:0", "sm_90a:-1", "sm_90a:6x", "neoverse-n1:4"})
        EXPECT_FALSE(describe_target(wrong).ok()) << wrong;
}

// Tiles of 192 columns, which small products are not given.
TEST(Gpu, TilesOf192ColumnsComputeTheSame) {
    constexpr int64_t kM = 70, kK = 72, kN = 200;
    for (int64_t rows : {64, 128})
        for (bool transposed : {false, true}) {
            auto compute = parse_compute(fmt::format(
                "compute c() (x: f16[{0}, {1}], w: f16[{3}], y: f16[{0}, {2}]) {{\n  t: f32[{0}, {2}] global\n"
                "  sum for i < {0}, j < {2}: t[i, j] += f32(x[i, k]) * f32(w[{4}]) over k < {1}\n"
                "  out for i < {0}, j < {2}: y[i, j] = f16(max(t[i, j], 0.0))\n}}\n",
                kM, kK, kN, transposed ? "200, 72" : "72, 200", transposed ? "j, k" : "k, j"));
            ASSERT_TRUE(compute.ok()) << compute.error().to_string();
            const auto made = wgmma_kernel(Schedule(*compute), compute->stages[0], compute->stages[1], false, 0,
                                           {.tile = {rows, 192, 64}, .window = {}});
            ASSERT_TRUE(made);
            EXPECT_THAT(to_string(made->kernel), testing::HasSubstr(fmt::format("wgmma_f16_{}x192", rows)));
            std::mt19937 gen(5);
            std::vector<Tensor> tensors{random_tensor(DType::f16, {kM, kK}, gen),
                                        random_tensor(DType::f16, transposed ? Sizes{kN, kK} : Sizes{kK, kN}, gen),
                                        *Tensor::zeros(DType::f16, {kM, kN})};
            Tensor want = *Tensor::zeros(DType::f16, {kM, kN});
            for (int64_t i = 0; i < kM; ++i)
                for (int64_t j = 0; j < kN; ++j) {
                    double sum = 0;
                    for (int64_t k = 0; k < kK; ++k)
                        sum +=
                            tensors[0].real_at(i * kK + k) * tensors[1].real_at(transposed ? j * kK + k : k * kN + j);
                    want.set_real(i * kN + j, std::max(sum, 0.0));
                }
            const Status ran = interpret(made->kernel, tensors, {}, {.races = Races::Find});
            ASSERT_TRUE(ran.ok()) << ran.error().to_string();
            expect_close(Datum(tensors[2]), Datum(want));
        }
}

// Weights may be copied before the launches before are done; of few rows only those that there are are copied.
TEST(Gpu, TilesOfWeightsComeEarly) {
    std::string numbers;
    for (int i = 0; i < 64 * 128; ++i) numbers += fmt::format("{}{:.2f}", i ? "," : "", 0.01 * (i * i % 197) - 1);
    const std::string body = "  return relu(matmul(x, w))\n}\n";
    const std::string known =
        fmt::format("graph g(x: f16[24,64]) {{\n  const w: f16[64,128] = [{}]\n{}", numbers, body);
    const std::string given = "graph g(x: f16[24,64], w: f16[64,128]) {\n" + body;
    EXPECT_THAT(kernels_of(for_blocks(known, "sm_90a")),
                testing::AllOf(testing::HasSubstr("early=2"), testing::HasSubstr("; 0, 1, 24)")));
    EXPECT_THAT(kernels_of(for_blocks(given, "sm_90a")),
                testing::AllOf(testing::Not(testing::HasSubstr("early")), testing::HasSubstr("; 0, 1, 24)")));
    for (const std::string& text : {known, given}) expect_in_any_order(text, {}, 5, "sm_90a");
}

// A known matrix is turned once, so that each block adds up what lies together.
TEST(Gpu, MatricesOfOneRowAreTurned) {
    std::string numbers;
    for (int i = 0; i < 64 * 40; ++i) numbers += fmt::format("{}{:.2f}", i ? "," : "", 0.01 * (i * i % 197) - 1);
    const std::string text = fmt::format(
        "graph g(x: f16[1,64], b: f16[40]) {{\n  const w: f16[64,40] = [{}]\n  %0 = matmul(x, w)\n"
        "  return relu(add(%0, b))\n}}\n",
        numbers);
    EXPECT_THAT(kernels_of(for_blocks(text, "sm_90a")), testing::HasSubstr("_prepared: f16[40, 64]"));
    for (const char* target : {"sm_80", "sm_90a"}) expect_in_any_order(text, {}, 5, target);
}

// What is copied is there when it was waited for, and not before.
TEST(Gpu, TilesLandAtTheirWait) {
    const std::string graph = "graph g(a: f16[64,64], b: f16[64,64]) {\n  return matmul(a, b)\n}\n";
    Program program = for_blocks(graph, "sm_90a");
    ASSERT_EQ(program.kernels.size(), 1u);
    const std::string text = to_string(program.kernels[0]), wait = "call wait_tile(tile_a[0, 0]; ; )\n";
    auto read = parse_kernels(text);
    ASSERT_TRUE(read.ok()) << read.error().to_string();
    EXPECT_EQ(to_string((*read)[0]), text);
    const size_t at = text.find(wait);
    ASSERT_NE(at, std::string::npos) << text;
    auto without = parse_kernels(text.substr(0, at) + text.substr(at + wait.size()));
    ASSERT_TRUE(without.ok()) << without.error().to_string();
    const Inputs inputs = random_inputs(*graph_of(graph), {}, 3);
    auto right = run_program(program, inputs, {});
    program.kernels[0] = (*without)[0];
    auto wrong = run_program(program, inputs, {});
    ASSERT_TRUE(right.ok() && wrong.ok());
    const auto is_nan = [](const Datum& d) { return std::isnan(d.tensor().real_at(0)); };
    EXPECT_FALSE(is_nan((*right)[0]));
    EXPECT_TRUE(is_nan((*wrong)[0])) << "what was not waited for was there";
}

// Large outputs get large tiles, small ones so many that there is work for all.
TEST(Gpu, TilesFollowSizes) {
    EXPECT_EQ(choose_block_tile(kH200, 1, 4096, 4096), (BlockTile{128, 128, 16}));
    EXPECT_LE(choose_block_tile(kH200, 1, 64, 64).m, 32);
}

constexpr const char* kTileSoftmax = R"(tile softmax(y: ptr<f32>, x: ptr<f32>, stride: i32, n: i32) {
  %4: i32 = program_id() [0]
  %5: i32[128] = arange() [0, 128]
  %6: i32 = map {x0 * x1}(%4, stride)
  %7: ptr<f32> = offset(x, %6)
  %8: ptr<f32>[128] = broadcast(%7)
  %9: ptr<f32>[128] = offset(%8, %5)
  %10: i32[128] = broadcast(n)
  %11: bool[128] = map {x0 < x1}(%5, %10)
  %12: f32 = constant {-inf}()
  %13: f32[128] = broadcast(%12)
  %14: f32[128] = load(%9, %11, %13)
  %15: bool[128] = map {x0 != x1}(%14, %14)
  %16: f32 = constant {-inf}()
  %17: f32[128] = broadcast(%16)
  %18: f32[128] = map {select(x0, x1, x2)}(%15, %17, %14)
  %19: f32 = reduce max(%18) [0]
  %20: f32[128] = broadcast(%19)
  %21: f32[128] = map {x0 - x1}(%14, %20)
  %22: f32[128] = map {exp(x0)}(%21)
  %23: i32 = map {x0 * x1}(%4, stride)
  %24: ptr<f32> = offset(y, %23)
  %25: ptr<f32>[128] = broadcast(%24)
  %26: ptr<f32>[128] = offset(%25, %5)
  %27: f32 = reduce sum(%22) [0]
  %28: f32[128] = broadcast(%27)
  %29: f32[128] = map {x0 / x1}(%22, %28)
  %30: i32[128] = broadcast(n)
  %31: bool[128] = map {x0 < x1}(%5, %30)
  store(%26, %29, %31)
}
)";

constexpr const char* kTileProduct = R"(tile product(c: ptr<f16>, a: ptr<f16>, b: ptr<f16>, m: i32, n: i32, k: i32) {
  %6: i32 = program_id() [0]
  %7: i32 = constant {32_i32}()
  %8: i32 = map {x0 * x1}(%6, %7)
  %9: i32[32] = arange() [0, 32]
  %10: i32[32] = broadcast(%8)
  %11: i32[32] = map {x0 + x1}(%10, %9)
  %12: i32 = program_id() [1]
  %13: i32 = constant {32_i32}()
  %14: i32 = map {x0 * x1}(%12, %13)
  %15: i32[32] = arange() [0, 32]
  %16: i32[32] = broadcast(%14)
  %17: i32[32] = map {x0 + x1}(%16, %15)
  %18: i32[32] = arange() [0, 32]
  %19: f32 = constant {0.0}()
  %20: f32[32, 32] = broadcast(%19)
  %21: i32 = constant {0_i32}()
  %22: i32 = constant {32_i32}()
  %77: f32[32, 32] = for(%21, k, %22, %20) { %23, %24 ->
    %25: i32[32, 1] = reshape(%11)
    %26: i32[32, 1] = broadcast(k)
    %27: i32[32, 1] = map {x0 * x1}(%25, %26)
    %28: ptr<f16>[32, 1] = broadcast(a)
    %29: ptr<f16>[32, 1] = offset(%28, %27)
    %30: i32[32] = broadcast(%23)
    %31: i32[32] = map {x0 + x1}(%30, %18)
    %32: i32[1, 32] = reshape(%31)
    %33: ptr<f16>[32, 32] = broadcast(%29)
    %34: i32[32, 32] = broadcast(%32)
    %35: ptr<f16>[32, 32] = offset(%33, %34)
    %36: i32[32, 1] = reshape(%11)
    %37: i32[32, 1] = broadcast(m)
    %38: bool[32, 1] = map {x0 < x1}(%36, %37)
    %39: i32[32] = broadcast(%23)
    %40: i32[32] = map {x0 + x1}(%39, %18)
    %41: i32[1, 32] = reshape(%40)
    %42: i32[1, 32] = broadcast(k)
    %43: bool[1, 32] = map {x0 < x1}(%41, %42)
    %44: bool[32, 32] = broadcast(%38)
    %45: bool[32, 32] = broadcast(%43)
    %46: bool[32, 32] = map {x0 && x1}(%44, %45)
    %47: f16 = constant {0.0_f16}()
    %48: f16[32, 32] = broadcast(%47)
    %49: f16[32, 32] = load(%35, %46, %48)
    %50: i32[32] = broadcast(%23)
    %51: i32[32] = map {x0 + x1}(%50, %18)
    %52: i32[32, 1] = reshape(%51)
    %53: i32[32, 1] = broadcast(n)
    %54: i32[32, 1] = map {x0 * x1}(%52, %53)
    %55: ptr<f16>[32, 1] = broadcast(b)
    %56: ptr<f16>[32, 1] = offset(%55, %54)
    %57: i32[1, 32] = reshape(%17)
    %58: ptr<f16>[32, 32] = broadcast(%56)
    %59: i32[32, 32] = broadcast(%57)
    %60: ptr<f16>[32, 32] = offset(%58, %59)
    %61: i32[32] = broadcast(%23)
    %62: i32[32] = map {x0 + x1}(%61, %18)
    %63: i32[32, 1] = reshape(%62)
    %64: i32[32, 1] = broadcast(k)
    %65: bool[32, 1] = map {x0 < x1}(%63, %64)
    %66: i32[1, 32] = reshape(%17)
    %67: i32[1, 32] = broadcast(n)
    %68: bool[1, 32] = map {x0 < x1}(%66, %67)
    %69: bool[32, 32] = broadcast(%65)
    %70: bool[32, 32] = broadcast(%68)
    %71: bool[32, 32] = map {x0 && x1}(%69, %70)
    %72: f16 = constant {0.0_f16}()
    %73: f16[32, 32] = broadcast(%72)
    %74: f16[32, 32] = load(%60, %71, %73)
    %75: f32[32, 32] = dot(%49, %74)
    %76: f32[32, 32] = map {x0 + x1}(%24, %75)
    give %76
  }
  %78: i32[32, 1] = reshape(%11)
  %79: i32[32, 1] = broadcast(n)
  %80: i32[32, 1] = map {x0 * x1}(%78, %79)
  %81: ptr<f16>[32, 1] = broadcast(c)
  %82: ptr<f16>[32, 1] = offset(%81, %80)
  %83: i32[1, 32] = reshape(%17)
  %84: ptr<f16>[32, 32] = broadcast(%82)
  %85: i32[32, 32] = broadcast(%83)
  %86: ptr<f16>[32, 32] = offset(%84, %85)
  %87: f16[32, 32] = map {f16(x0)}(%77)
  %88: i32[32, 1] = reshape(%11)
  %89: i32[32, 1] = broadcast(m)
  %90: bool[32, 1] = map {x0 < x1}(%88, %89)
  %91: i32[1, 32] = reshape(%17)
  %92: i32[1, 32] = broadcast(n)
  %93: bool[1, 32] = map {x0 < x1}(%91, %92)
  %94: bool[32, 32] = broadcast(%90)
  %95: bool[32, 32] = broadcast(%93)
  %96: bool[32, 32] = map {x0 && x1}(%94, %95)
  store(%86, %87, %96)
}
)";

constexpr const char* kTileOutside = R"(tile wild(y: ptr<f32>, x: ptr<f32>, n: i32) {
  %3: i32[64] = arange() [0, 64]
  %4: i32 = constant {3_i32}()
  %5: i32[64] = broadcast(%4)
  %6: i32[64] = map {x0 * x1}(%3, %5)
  %7: i32 = constant {7_i32}()
  %8: i32[64] = broadcast(%7)
  %9: i32[64] = map {x0 - x1}(%6, %8)
  %10: ptr<f32>[64] = broadcast(y)
  %11: ptr<f32>[64] = offset(%10, %9)
  %12: i32 = constant {5_i32}()
  %13: i32[64] = broadcast(%12)
  %14: i32[64] = map {x0 * x1}(%9, %13)
  %15: ptr<f32>[64] = broadcast(x)
  %16: ptr<f32>[64] = offset(%15, %14)
  %17: f32[64] = load(%16)
  %18: f32 = constant {1.0}()
  %19: f32[64] = broadcast(%18)
  %20: f32[64] = map {x0 + x1}(%17, %19)
  store(%11, %20)
}
)";

// A graph whose node runs a tile program; its text, in which lines end.
std::string with_tile(const std::string& before, std::string program, const std::string& rest) {
    for (size_t at = 0; (at = program.find('\n', at)) != std::string::npos; ++at) program.replace(at, 1, " ");
    return before + "kernel=\"" + program + "\", " + rest;
}

// Tile kernels of a model are blocks of threads too. What they reach outside of their tensors is 0, or is dropped.
TEST(Gpu, TileKernelsOfModels) {
    const std::string rows = with_tile(
        "graph g(x: f32[M, N]) {\n  %s = mul(x, 0.125)\n  %p = tile_kernel(%s, arguments=[\"out0\", \"in0\", "
        "\"in0.d1\", "
        "\"in0.d1\"], grid=[\"in0.d0\"], ",
        kTileSoftmax, "outputs=[\"f32[in0.d0, in0.d1]\"])\n  return add(%p, x)\n}\n");
    const std::string products = with_tile(
        "graph g(a: f16[M, K], b: f16[K, N]) {\n  %p = tile_kernel(a, b, arguments=[\"out0\", \"in0\", \"in1\", "
        "\"in0.d0\", \"in1.d1\", \"in0.d1\"], grid=[\"(in0.d0 + 31) / 32\", \"(in1.d1 + 31) / 32\"], ",
        kTileProduct, "outputs=[\"f16[in0.d0, in1.d1]\"])\n  return relu(%p)\n}\n");
    const std::string outside = with_tile(
        "graph g(x: f32[N]) {\n  return tile_kernel(x, arguments=[\"out0\", \"in0\", \"in0.d0\"], grid=[\"1\"], ",
        kTileOutside, "outputs=[\"f32[in0.d0]\"])\n}\n");
    for (const char* target : {"sm_80", "sm_90a"}) {
        EXPECT_THAT(kernels_of(for_blocks(rows, target)), testing::HasSubstr("on thread.x")) << "it is on the host";
        for (int64_t n : {1, 60, 128}) expect_in_any_order(rows, {{"M", 3}, {"N", n}}, 5, target);
        expect_in_any_order(products, {{"M", 33}, {"N", 20}, {"K", 70}}, 5, target);
        for (int64_t n : {1, 50, 200}) expect_in_any_order(outside, {{"N", n}}, 5, target);
    }
}

}  // namespace
}  // namespace tessera::test::gpu_test
