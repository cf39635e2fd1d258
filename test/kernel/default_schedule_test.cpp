// Default schedules mean the same as plain nests, on machines of several kinds and shapes of every awkwardness.
#include "kernel/cpu/default_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernel/cpu/contraction_tiles.h"
#include "kernel/run_sample.h"

namespace tessera::default_schedule_test {
namespace {

using namespace sample;

struct Processor {
    const char* name;
    Machine machine;
};
std::vector<Processor> processors() {
    Machine neon, avx512, avx2;
    neon.lane_multiply = true;
    neon.fma_pipes = 4;
    avx512.vector_bytes = 64;
    avx512.load_broadcast = avx512.masked = true;
    avx2.vector_bytes = 32;
    avx2.vector_registers = 16;
    // Caches so small that all blocks are cut.
    Machine tiny = neon;
    tiny.l1_bytes = 2 << 10;
    tiny.l2_bytes = 8 << 10;
    return {{"neon", neon}, {"avx512", avx512}, {"avx2", avx2}, {"tiny", tiny}};
}

size_t loops_of(const Kernel& kernel, LoopKind kind) {
    size_t found = 0;
    visit(kernel.body, [&](const Stmt& s) {
        const For* loop = s->as<For>();
        found += loop && loop->kind == kind;
    });
    return found;
}

// Runs the default schedule of every processor beside the plain nests. Gives the most parallel loops one has.
size_t check_on(const std::vector<Processor>& all, const std::vector<int>& numbers_of_threads, const Compute& compute,
                const SymbolValues& symbols) {
    size_t most = 0;
    auto run = [&] {
        ASSERT_TRUE(verify(compute).ok()) << verify(compute).error().to_string() << to_string(compute);
        std::vector<Tensor> inputs = random_parameters(compute, symbols);
        std::vector<Tensor> expected = inputs;
        ASSERT_NO_FATAL_FAILURE(run_kernel(plain_nests(compute), expected, symbols));
        for (const Processor& p : all) {
            for (int threads : numbers_of_threads) {
                SCOPED_TRACE(fmt::format("{}, {} threads, {}", p.name, threads, compute.name));
                CpuScheduleOptions options{{p.machine, threads}};
                auto schedule = default_schedule(compute, options);
                ASSERT_TRUE(schedule.ok()) << schedule.error().to_string() << "\n" << to_string(compute);
                auto lowered = lower(*schedule);
                ASSERT_TRUE(lowered.ok()) << lowered.error().to_string() << "\n" << schedule->print_trace();
                std::vector<Tensor> got = inputs;
                ASSERT_NO_FATAL_FAILURE(run_lowered(*lowered, got, symbols)) << to_string(lowered->kernel);
                for (size_t i = 0; i < got.size(); ++i)
                    ASSERT_LE(distance(got[i], expected[i]), 1e-4)
                        << compute.buffers[i].name << "\n"
                        << schedule->print_trace() << to_string(lowered->kernel);
                most = std::max(most, loops_of(lowered->kernel, LoopKind::Parallel));
            }
        }
    };
    run();
    return most;
}

void check(const Compute& compute, const SymbolValues& symbols = {}) {
    check_on(processors(), {1, 2}, compute, symbols);
}

TEST(DefaultSchedule, Products) {
    for (auto [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                              {12, 8, 4},
                                                              {13, 9, 5},
                                                              {7, 40, 33},
                                                              {1, 17, 19},
                                                              {17, 1, 3},
                                                              {31, 37, 300},
                                                              {9, 20, 1152},
                                                              {5, 3, 0},
                                                              {0, 3, 4}})
        for (bool known : {false, true}) check(matmul(m, n, k, known));
}

// Rounding errors grow with the longest chain of additions.
TEST(DefaultSchedule, LongSumsAreAddedUpInParts) {
    for (int64_t k : {193, 997, 1152, 2051}) check(matmul(40, 72, k, true));
    for (const Processor& p : processors()) {
        auto s = default_schedule(matmul(40, 72, 1152, true), {{.machine = p.machine, .threads = 1}});
        ASSERT_TRUE(s.ok());
        const int64_t longest = p.machine.load_broadcast ? 384 : 192;
        for (const Stage& stage : s->compute().stages)
            for (const Loop& loop : s->loops(stage.name))
                if (s->reduces(loop)) {
                    EXPECT_LE(s->extent(loop).as_int().value_or(1152), longest) << p.name << " " << loop.name;
                }
    }
}

// The register tile is all that the loop over k repeats, also where a long k comes in blocks.
TEST(DefaultSchedule, NoLoopsInsideARegisterTile) {
    for (Processor p : processors()) {
        if (p.machine.vector_bytes == 64) p.machine.l1_bytes = 48 << 10, p.machine.l2_bytes = 2 << 20;
        for (auto [m, n, k] : std::vector<std::array<int64_t, 3>>{
                 {160, 512, 128}, {160, 512, 1152}, {160, 512, 4608}, {128, 768, 3072}, {2048, 2048, 2048}}) {
            auto s = default_schedule(matmul(m, n, k, true), {{.machine = p.machine, .threads = 1}});
            ASSERT_TRUE(s.ok());
            auto lowered = lower(*s);
            ASSERT_TRUE(lowered.ok());
            visit(lowered->kernel.body, [&](const Stmt& outer) {
                const For* tile = outer->as<For>();
                if (!tile || (tile->kind != LoopKind::Unrolled && tile->kind != LoopKind::Vector)) return;
                visit(tile->body, [&](const Stmt& inner) {
                    const For* loop = inner->as<For>();
                    EXPECT_FALSE(loop && loop->kind == LoopKind::Serial)
                        << p.name << ", " << m << " x " << n << " x " << k << ":\n"
                        << to_string(lowered->kernel);
                });
            });
        }
    }
}

TEST(DefaultSchedule, ProductsOfSymbolicSizes) {
    Expr m = symbol("M"), n = symbol("N"), k = symbol("K");
    for (int64_t at : {0, 1, 2, 13, 30}) {
        check(matmul(m, 20, 11, true), {{"M", at}});
        check(matmul(m, n, k, false), {{"M", at}, {"N", 9}, {"K", at}});
    }
}

TEST(DefaultSchedule, ProductsWithBiasAndActivation) {
    for (auto [m, n, k] : std::vector<std::array<int64_t, 3>>{{12, 8, 4}, {13, 9, 600}, {1, 17, 19}})
        check(linear(m, n, k));
}

TEST(DefaultSchedule, BatchedProducts) {
    for (auto [b, m, n, k] : std::vector<std::array<int64_t, 4>>{{1, 4, 5, 6}, {3, 13, 9, 5}, {2, 1, 33, 40}}) {
        check(batched_matmul(b, m, n, k, false));
        check(batched_matmul(b, m, n, k, true));
    }
}

// Loops over a batch of one, which ask each time whether there is one, would stand inside the loop over k.
TEST(DefaultSchedule, NoLoopsAroundOneOfABatchOfSymbolicSize) {
    Expr b = symbol("B"), m = symbol("M"), n = symbol("N");
    for (bool transposed : {false, true}) {
        Compute compute = batched_matmul(12 * b, m, n, 40, transposed);
        check(compute, {{"B", 1}, {"M", 13}, {"N", 9}});
        check(compute, {{"B", 0}, {"M", 13}, {"N", 9}});
        for (const Processor& p : processors()) {
            auto schedule = default_schedule(compute, {p.machine, 2});
            ASSERT_TRUE(schedule.ok());
            const std::string text = to_string(lower(*schedule)->kernel);
            EXPECT_EQ(text.find("< 12*B {"), text.rfind("< 12*B {")) << text;  // at most the one that packs
            EXPECT_EQ(text.find("max(12*B"), std::string::npos) << text;
        }
    }
}

// k is filled up to whole vectors where that adds little to it.
TEST(DefaultSchedule, ShortSumsAreNotFilledUp) {
    for (int64_t k : {2, 8, 17, 30}) {
        check(matmul(50, 40, k, true));
        auto schedule =
            default_schedule(matmul(512, 304, k, true), {{.machine = processors()[1].machine, .threads = 1}});
        ASSERT_TRUE(schedule.ok());
        const bool filled = schedule->print_trace().find(", 16)\ntransform_layout") != std::string::npos;
        EXPECT_EQ(filled, k == 30) << schedule->print_trace();
    }
}

// With few columns, rows are not worth a copy, also where the last tile has fewer of them.
TEST(DefaultSchedule, FewColumnsReadRowsWhereTheyLie) {
    for (int64_t m : {33, 45, 90})
        for (int64_t n : {3, 16, 20}) {
            check(matmul(m, n, 70, true));
            check(matmul(m, n, 400, false));
        }
    check(linear(45, 16, 70));
    for (const Processor& p : processors()) {
        auto schedule = default_schedule(matmul(542, 16, 1874, true), {{.machine = p.machine, .threads = 1}});
        ASSERT_TRUE(schedule.ok());
        const std::string trace = schedule->print_trace();
        EXPECT_EQ(trace.find("transform_layout(c_a") == std::string::npos, p.machine.load_broadcast) << p.name << trace;
    }
}

TEST(DefaultSchedule, HeadsAreSplitWhereTheyAreStored) { check(project_to_heads(2, 7, 3, 4, 10)); }

TEST(DefaultSchedule, Convolutions) {
    check(conv({.n = 1, .h = 5, .w = 6, .c = 3, .filters = 7, .kernel = 3}));
    check(conv({.n = 2, .h = 7, .w = 7, .c = 8, .filters = 16, .kernel = 3, .stride = 2, .pad = 1}));
    check(conv({.n = 1, .h = 4, .w = 4, .c = 33, .filters = 5, .kernel = 1}));
    check(conv({.n = 1, .h = 9, .w = 5, .c = 40, .filters = 9, .kernel = 3, .stride = 1, .pad = 1, .dilation = 2}));
    check(conv({.n = 1, .h = 1, .w = 1, .c = 1, .filters = 1, .kernel = 1}));
    check(conv({.n = 1, .h = 5, .w = 3, .c = 6, .filters = 5, .kernel = 5, .pad = 2, .residual = true}));
}

// In groups and three dimensions, all sizes open: still a product in tiles.
TEST(DefaultSchedule, GroupedConvolutionsOfOpenVolumes) {
    const auto compute = parse_compute(
        "compute conv(n, m, k) (x: f32[1, 10, n, m, k], w: f32[10, 5, 5, 3, 7], y: f32[1, 10, floordiv(n + 1, 2) - 2, "
        "floordiv(m + 1, 2), floordiv(k + 1, 2)]) {\n"
        "  known w\n"
        "  t: f32[1, 2, 5, floordiv(n + 1, 2) - 2, floordiv(m + 1, 2), floordiv(k + 1, 2)] global\n"
        "  conv for i0 < 1, i1 < 2, i2 < 5, i3 < floordiv(n + 1, 2) - 2, i4 < floordiv(m + 1, 2), i5 < floordiv(k + 1, "
        "2): t[i0, i1, i2, i3, i4, i5] += select(2*i3 + r1 < n && (0 < 2*i4 + r2 && 2*i4 + r2 <= m) && (2 < 2*i5 + r3 "
        "&& 2*i5 + r3 < k + 3), x[i0, 5*i1 + r0, 2*i3 + r1, 2*i4 + r2 - 1, 2*i5 + r3 - 3], 0.0) * w[5*i1 + i2, r0, r1, "
        "r2, r3] over r0 < 5, r1 < 5, r2 < 3, r3 < 7\n"
        "  relu for i0 < 1, i1 < 2, i2 < 5, i3 < floordiv(n + 1, 2) - 2, i4 < floordiv(m + 1, 2), i5 < floordiv(k + 1, "
        "2): y[i0, 5*i1 + i2, i3, i4, i5] = max(t[i0, i1, i2, i3, i4, i5], 0.0)\n}\n");
    ASSERT_TRUE(compute.ok()) << compute.error().to_string();
    for (int64_t n : {5, 7}) check(*compute, {{"n", n}, {"m", 6}, {"k", 9}});
}

// A few places of each line: where elements are broadcast from memory, lines are copied and windows are not.
TEST(DefaultSchedule, ConvolutionsOfPlanes) {
    for (int64_t w : {5, 24, 31})
        for (int64_t stride : {1, 2, 3})
            check(conv({.n = 2,
                        .h = 4,
                        .w = w * stride,
                        .c = 3,
                        .filters = 20,
                        .kernel = 3,
                        .stride = stride,
                        .pad = 1,
                        .swish = w == 31,
                        .planes = true}));
    check(
        conv({.n = 1, .h = 7, .w = 40, .c = 2, .filters = 9, .kernel = 7, .pad = 3, .residual = true, .planes = true}));
    check(conv({.n = 1, .h = 3, .w = 30, .c = 1, .filters = 33, .kernel = 3, .pad = 2, .dilation = 2, .planes = true}));
    check(conv({.n = 1, .h = 3, .w = 30, .c = 1, .filters = 16, .kernel = 1, .planes = true}));
    for (const Processor& p : processors()) {
        const Compute compute =
            conv({.n = 1, .h = 8, .w = 160, .c = 3, .filters = 48, .kernel = 3, .pad = 1, .planes = true});
        auto schedule = default_schedule(compute, {{.machine = p.machine, .threads = 1}});
        ASSERT_TRUE(schedule.ok());
        const bool packs = schedule->print_trace().find("conv_a = reindex") != std::string::npos;
        EXPECT_EQ(packs, !p.machine.load_broadcast) << p.name;
    }
}

Compute parsed(const std::string& text) {
    auto made = parse_compute(text);
    EXPECT_TRUE(made.ok()) << made.error().to_string() << text;
    return made.ok() ? *made : Compute{};
}

std::string trace_on(const Machine& machine, const Compute& compute) {
    auto schedule = default_schedule(compute, {{.machine = machine, .threads = 1}});
    EXPECT_TRUE(schedule.ok());
    return schedule.ok() ? schedule->print_trace() : "";
}

// A convolution as ONNX has it reads its windows from lines of a copy, whatever the sums are long.
TEST(DefaultSchedule, WindowsAreReadFromLines) {
    auto planes = [](int64_t c, int64_t filters, int64_t w, int64_t kernel, bool sigmoid) {
        const std::string sum = sigmoid ? "t" : "y",
                          more = sigmoid ? fmt::format("  t: f32[2, {}, 5, {}] global\n", filters, w) : "";
        return parsed(fmt::format(
            "compute conv() (x: f32[2, {0}, 5, {2}], w: f32[{1}, {0}, 3, {3}], y: f32[2, {1}, 5, {2}]) {{\n  known "
            "w\n{6}"
            "  conv for n < 2, f < {1}, i < 5, j < {2}: {4}[n, f, i, j] += select(0 < i + p && i + p <= 5 && ({5} <= j "
            "+ q && "
            "j + q < {2} + {5}), x[n, c, i + p - 1, j + q - {5}], 0.0) * w[f, c, p, q] over c < {0}, p < 3, q < "
            "{3}\n{7}}}\n",
            c, filters, w, kernel, sum, kernel / 2, more,
            sigmoid ? fmt::format(
                          "  out for n < 2, f < {}, i < 5, j < {}: y[n, f, i, j] = 1.0 / (1.0 + exp(t[n, f, i, j]))\n",
                          filters, w)
                    : ""));
    };
    for (bool sigmoid : {false, true})
        for (int64_t w : {24, 31, 50}) check(planes(3, 17, w, w == 31 ? 5 : 3, sigmoid));
    const Compute deep = planes(60, 9, 40, 3, false);
    check(deep);
    for (const Processor& p : processors()) {
        const std::string trace = trace_on(p.machine, deep);
        EXPECT_EQ(trace.find("conv_a = reindex"), std::string::npos) << p.name << trace;
        EXPECT_NE(trace.find("rfactor(conv.c.o)"), std::string::npos) << p.name << trace;
    }
}

// Places of padded lines of open length are not divided by it: each line is packed by itself.
TEST(DefaultSchedule, OpenLinesArePackedApart) {
    const Compute conv = parsed(
        "compute conv(N) (x: f32[1, 30, 5, N], w: f32[6, 30, 3, 3], y: f32[1, 5, N, 6]) {\n  known w\n"
        "  conv for n < 1, i < 5, j < N, f < 6: y[n, i, j, f] += select(0 < i + p && i + p <= 5 && (0 < j + q && j + q "
        "<= N), x[n, c, i + p - 1, j + q - 1], 0.0) * w[f, c, p, q] over c < 30, p < 3, q < 3\n}\n");
    for (int64_t n : {1, 3, 8, 21}) check(conv, {{"N", n}});
    for (const Processor& p : processors())
        EXPECT_EQ(trace_on(p.machine, conv).find(";1,2;"), std::string::npos) << p.name << trace_on(p.machine, conv);
}

// The lines between those that a dilated window reads are not copied for each line of the result.
TEST(DefaultSchedule, DilatedWindowsCopyNoLinesBetween) {
    const Compute dilated = parsed(
        "compute conv() (x: f32[1, 8, 9, 40], w: f32[12, 8, 3, 3], y: f32[1, 12, 9, 40]) {\n  known w\n"
        "  conv for n < 1, f < 12, i < 9, j < 40: y[n, f, i, j] += select(4 <= i + 4*p && i + 4*p < 13 && (4 <= j + "
        "4*q && "
        "j + 4*q < 44), x[n, c, i + 4*p - 4, j + 4*q - 4], 0.0) * w[f, c, p, q] over c < 8, p < 3, q < 3\n}\n");
    check(dilated);
    for (const Processor& p : processors())
        EXPECT_EQ(trace_on(p.machine, dilated).find("compute_at(conv_padded"), std::string::npos) << p.name;
}

// One output reads each place once: however many there are, no window is packed for it.
TEST(DefaultSchedule, WindowsOfOneOutputAreNotPacked) {
    const Compute one = parsed(
        "compute conv() (x: f32[1, 40, 9, 40], w: f32[1, 40, 3, 3], y: f32[1, 1, 9, 40]) {\n  known w\n"
        "  conv for n < 1, f < 1, i < 9, j < 40: y[n, f, i, j] += select(2 <= i + 2*p && i + 2*p < 11 && (2 <= j + "
        "2*q && j + 2*q < 42), x[n, c, i + 2*p - 2, j + 2*q - 2], 0.0) * w[f, c, p, q] over c < 40, p < 3, q < "
        "3\n}\n");
    check(one);
    for (const Processor& p : processors())
        EXPECT_EQ(trace_on(p.machine, one).find("reindex(conv"), std::string::npos) << p.name;
}

// Columns in steps, of lines whose neighbours above are padded, or that several outputs read; and bounds of windows in
// steps, which say less of the places between them than of those that are read.
TEST(DefaultSchedule, WindowsInStepsReadACopy) {
    auto conv = [](const char* size, int64_t rows, int64_t columns, int64_t outputs) {
        return parsed(fmt::format(
            "compute conv(N) (x: f32[1, 2, {0}, {0}], w: f32[2, {3}, 3, 3], y: f32[1, 2, {3}, floordiv({0} + 1, 2), "
            "floordiv({0} - 3, {2})]) {{\n  known w\n"
            "  conv for n < 1, g < 2, f < {3}, i < floordiv({0} + 1, 2), j < floordiv({0} - 3, {2}): y[n, g, f, i, j] "
            "+= "
            "select(1 <= i + p && i + p <= floordiv({0} + 1, 2), x[n, g, min({1}*i + {1}*p - {1}, {0} - 1), {2}*j + "
            "q], "
            "0.0) * w[g, f, p, q] over p < 3, q < 3\n}}\n",
            size, rows, columns, outputs));
    };
    for (int64_t outputs : {1, 3})
        for (int64_t columns : {2, 3}) {
            check(conv("21", 2, columns, outputs), {{"N", 1}});
            check(conv("N", 2, columns, outputs), {{"N", 24}});
        }
    for (int64_t n : {9, 10, 17}) {
        const Compute dilated = parsed(
            "compute conv(N) (x: f32[2, 3, N, N], w: f32[3, 2, 3, 3], y: f32[2, 3, 2, floordiv(N + 1, 2), N]) {\n"
            "  known w\n  conv for n < 2, g < 3, f < 2, i < floordiv(N + 1, 2), j < N: y[n, g, f, i, j] += select(1 <= "
            "i "
            "+ p && i + p < floordiv(N + 1, 2) + 1 && (3 <= j + 3*q && j + 3*q < N + 3), x[n, g, 2*i + 2*p - 2, j + "
            "3*q "
            "- 3], 0.0) * w[g, f, p, q] over p < 3, q < 3\n}\n");
        check(dilated, {{"N", n}});
        for (const Processor& processor : processors())
            if (processor.machine.l2_bytes > 1 << 16) {
                EXPECT_NE(trace_on(processor.machine, dilated).find("conv_padded"), std::string::npos)
                    << processor.name;
            }
    }
}

// Rows of a copy have room for whole vectors, also of open sizes: none is stored in parts.
TEST(DefaultSchedule, RowsOfCopiesAreWholeVectors) {
    const Compute pool = parsed(
        "compute pool(N) (x: f32[2, N, N], y: f32[2, floordiv(N, 2), floordiv(N - 1, 2)]) {\n  pool for c < 2, i < "
        "floordiv(N, 2), j < floordiv(N - 1, 2): y[c, i, j] max= x[c, 2*i + p, 2*j + q] over p < 2, q < 3\n}\n");
    for (int64_t n : {1, 3, 9, 16, 40, 43}) check(pool, {{"N", n}});
    for (const Processor& p : processors())
        EXPECT_NE(trace_on(p.machine, pool).find("pad(pool_padded, 1, 1, "), std::string::npos) << p.name;
}

// Tiles of windows along lines of open length reach beyond them in a copy: no place of a window is decided by lanes.
TEST(DefaultSchedule, WindowsAlongOpenLinesReadACopy) {
    for (int64_t steps : {1, 2}) {
        const Compute pool = parsed(
            fmt::format("compute pool(N) (x: f32[3, 7, N], y: f32[3, 5, floordiv(N - 1, {0})]) {{\n  pool for c < 3, i "
                        "< 5, j < floordiv(N - 1, {0}): y[c, i, j] max= x[c, i + p, {0}*j + q] over p < 3, q < 2\n}}\n",
                        steps));
        for (int64_t n : {1, 2, 3, 8, 9, 17, 40}) check(pool, {{"N", n}});
        for (const Processor& p : processors())
            EXPECT_NE(trace_on(p.machine, pool).find("pool_padded"), std::string::npos) << p.name;
    }
}

// Places that a map picks its elements from, and weights, are computed once for all rows.
TEST(DefaultSchedule, PlacesThatRowsShareAreKept) {
    const Compute nearest = parsed(
        "compute resize(N) (x: f32[6, N], y: f32[6, 3*N]) {\n  out for i < 6, j < 3*N: y[i, j] = x[i, min(N - 1, "
        "max(i64(ceil(f64(j) * f64(N - 1) / (3.0_f64 * f64(N) - 1.0_f64) - 0.5_f64)), 0))]\n}\n");
    for (int64_t n : {2, 5, 16}) check(nearest, {{"N", n}});
    const Compute sum = parsed(
        "compute resize() (x: f32[7, 12], g: f32[20], y: f32[7, 20]) {\n  t: f32[7, 20] global\n"
        "  s for i < 7, j < 20: t[i, j] += exp(g[j]) * select(0 <= i64(floor(g[j] * 8.0)) + r && i64(floor(g[j] * "
        "8.0)) "
        "+ r < 12, x[i, min(max(i64(floor(g[j] * 8.0)) + r, 0), 11)], 0.0) over r < 2\n"
        "  out for i < 7, j < 20: y[i, j] = t[i, j] + 1.0\n}\n");
    check(sum);
    for (const Processor& p : processors()) {
        EXPECT_NE(trace_on(p.machine, nearest).find("out_places0"), std::string::npos) << p.name;
        EXPECT_NE(trace_on(p.machine, sum).find("s_places0"), std::string::npos) << p.name;
    }
}

TEST(DefaultSchedule, FewColumnsTakeSeveralRows) {
    auto columns = [](int64_t outer, int64_t rows, int64_t count, const char* combine) {
        return parsed(
            fmt::format("compute c() (x: f32[{0}, {1}, {2}], y: f32[{0}, {2}]) {{\n"
                        "  s for a < {0}, b < {2}: y[a, b] {3} x[a, r, b] over r < {1}\n}}\n",
                        outer, rows, count, combine));
    };
    for (int64_t count : {2, 3, 5, 7, 9, 12, 15})
        for (int64_t rows : {130, 257, 400}) check(columns(2, rows, count, count == 7 ? "max=" : "+="));
    check(columns(1, 500, 9, "+="));
    const std::string trace = trace_on(processors()[1].machine, columns(1, 500, 9, "+="));
    EXPECT_NE(trace.find("fuse(s_rf.r.i, s_rf.b)"), std::string::npos) << trace;
}

// A dimension of one that is kept in the middle of others is no reason to compute a sum apart from what reads it.
TEST(DefaultSchedule, KeptDimensionsInTheMiddle) {
    const Compute kept = parsed(
        "compute k(N, M) (x: f32[N, 3, M], y: f32[N, 1, M]) {\n  t: f32[N, M] global\n"
        "  s for a < N, b < M: t[a, b] *= x[a, r, b] over r < 3\n"
        "  y for a < N, c < 1, b < M: y[a, c, b] = t[a, b]\n}\n");
    for (int64_t m : {0, 1, 2, 17, 70}) check(kept, {{"N", 5}, {"M", m}});
    EXPECT_NE(trace_on(processors()[1].machine, kept).find("compute_at(s, "), std::string::npos);
    // A product keeps its own tiles where what reads it has such a dimension elsewhere.
    const Compute product = parsed(
        "compute p(N) (x: f32[N, 64, 1], w: f32[128, 64], y: f32[N, 128, 1]) {\n  known w\n"
        "  t: f32[N, 1, 128] global\n"
        "  m for a < N, c < 1, b < 128: t[a, c, b] += x[a, k, c] * w[b, k] over k < 64\n"
        "  y for a < N, b < 128, c < 1: y[a, b, c] = max(t[a, c, b], 0.0)\n}\n");
    for (int64_t n : {0, 1, 7}) check(product, {{"N", n}});
}

// Rows are divided by roots, and by what softmax sums up, as products; by nothing else, whose reciprocal may be none.
TEST(DefaultSchedule, ReciprocalsOfRows) {
    auto rows = [](const std::string& divisor, const std::string& sums) {
        return parsed(
            "compute r() (x: f32[3, 40], z: f32[3, 40], y: f32[3, 40]) {\n  m: f32[3] global\n"
            "  e: f32[3, 40] global\n  s: f32[3] global\n  d: f32[3] global\n"
            "  m for i < 3: m[i] max= x[i, j] over j < 40\n"
            "  e for i < 3, j < 40: e[i, j] = exp(" +
            sums +
            "[i, j] - m[i])\n"
            "  s for i < 3: s[i] += e[i, j] over j < 40\n"
            "  d for i < 3: d[i] = " +
            divisor +
            "\n"
            "  y for i < 3, j < 40: y[i, j] = e[i, j] / s[i] + x[i, j] / d[i]\n}\n");
    };
    auto products = [](const Compute& compute) {
        auto schedule = default_schedule(compute, {{.machine = processors()[0].machine, .threads = 1}});
        EXPECT_TRUE(schedule.ok());
        const std::string text = to_string(schedule->start());
        return std::pair{text.find("1.0 / s[") != std::string::npos, text.find("1.0 / d[") != std::string::npos};
    };
    check(rows("sqrt(s[i])", "x"));
    EXPECT_EQ(products(rows("sqrt(s[i])", "x")), std::pair(true, true));
    EXPECT_EQ(products(rows("s[i] * s[i]", "x")), std::pair(true, false));
    EXPECT_EQ(products(rows("s[i] * s[i]", "z")), std::pair(false, false));  // less the largest of another
    auto strict =
        default_schedule(rows("sqrt(s[i])", "x"), {{.machine = processors()[0].machine, .threads = 1, .strict = true}});
    ASSERT_TRUE(strict.ok());
    EXPECT_EQ(to_string(strict->start()).find("1.0 / "), std::string::npos);
}

// A softmax knows that its exponents are not positive; of others that is not known.
TEST(DefaultSchedule, ExponentsAreBounded) {
    auto exps = [](const std::string& of, const std::string& largest) {
        return parsed(
            "compute r() (x: f32[40, 40], z: f32[40, 40], y: f32[40, 40]) {\n  m: f32[40] global\n  k: f32[40, 1] "
            "global\n"
            "  m for i < 40: m[i] max= x[i, j] over j < 40\n"
            "  k for i < 40, j < 1: k[i, j] = m[i]\n"
            "  y for i < 40, j < 40: y[i, j] = exp(" +
            of + "[i, j] - " + largest + ")\n}\n");
    };
    auto bounded = [](const Compute& compute) {
        auto schedule = default_schedule(compute, {{.machine = processors()[0].machine, .threads = 1}});
        EXPECT_TRUE(schedule.ok());
        return to_string(schedule->start()).find("exp(min(") != std::string::npos;
    };
    for (const char* largest : {"m[i]", "k[i, 0]"}) {
        check(exps("x", largest));
        EXPECT_TRUE(bounded(exps("x", largest)));
        EXPECT_FALSE(bounded(exps("z", largest)));
    }
    EXPECT_FALSE(bounded(exps("x", "m[j]")));  // of another row
    check(exps("x", "m[j]"));
}

// The largest of many elements, as of few: tiles over a padded copy whose columns are apart by their remainders.
TEST(DefaultSchedule, LargeMaximaSlideOverACopy) {
    check(max_pool(20, 33, 3, 15, 2, 7));
    auto large = parse_compute(
        "compute pool() (x: f32[4, 60, 54], y: f32[4, 14, 27]) {\n"
        "  pool for c < 4, i < 14, j < 27: y[c, i, j] max= select(6 <= 2*j + q && 2*j + q < 60, x[c, 2*i + p, 2*j + q "
        "- 6], "
        "-inf) over p < 31, q < 13\n}\n");
    ASSERT_TRUE(large.ok()) << large.error().to_string();
    check(*large);
    auto schedule = default_schedule(*large, {{.machine = processors()[1].machine, .threads = 1}});
    ASSERT_TRUE(schedule.ok());
    EXPECT_EQ(schedule->print_trace().find("rfactor"), std::string::npos) << schedule->print_trace();
}

// Rows of a pool that share nothing are read from end to end; those that do, a part of the channels at a time.
TEST(DefaultSchedule, PoolsReadWholeRows) {
    Machine machine = processors()[1].machine;
    machine.l1_bytes = 48 << 10;
    for (auto [kernel, stride] : {std::pair{2, 2}, {3, 3}, {3, 2}}) {
        auto schedule =
            default_schedule(max_pool(60, 162, 48, kernel, stride, 0), {{.machine = machine, .threads = 1}});
        ASSERT_TRUE(schedule.ok());
        std::vector<std::string> names;
        for (const Loop& loop : schedule->loops("out_out"))
            if (!schedule->extent(loop).is_int(1)) names.push_back(loop.name);
        EXPECT_EQ(names[0].find("out_out.c") == std::string::npos, kernel == stride) << schedule->print_trace();
    }
}

TEST(DefaultSchedule, CostlyEpilogues) {
    check(conv({.n = 1, .h = 5, .w = 6, .c = 3, .filters = 7, .kernel = 3, .swish = true}));
    check(conv({.n = 2, .h = 4, .w = 4, .c = 33, .filters = 16, .kernel = 1, .residual = true, .swish = true}));
}

TEST(DefaultSchedule, GroupedConvolutions) {
    for (int64_t c : {2, 4, 8, 16}) {
        check(grouped_conv({.n = 1, .h = 5, .w = 9, .c = c, .filters = c, .kernel = 3, .pad = 1}, 32 / c));
        check(grouped_conv({.n = 2, .h = 6, .w = 7, .c = c, .filters = c, .kernel = 3, .stride = 2, .pad = 1}, 32 / c));
    }
    check(grouped_conv({.n = 1, .h = 3, .w = 31, .c = 4, .filters = 4, .kernel = 3, .pad = 1}, 4));
    check(grouped_conv({.n = 1, .h = 2, .w = 2, .c = 4, .filters = 4, .kernel = 5, .pad = 2}, 8));
    check(grouped_conv({.n = 1, .h = 9, .w = 9, .c = 4, .filters = 4, .kernel = 3, .pad = 2, .dilation = 2}, 8));
    check(grouped_conv({.n = 1, .h = 4, .w = 17, .c = 1, .filters = 1, .kernel = 7, .pad = 3}, 16));
    check(grouped_conv({.n = 1, .h = 4, .w = 5, .c = 4, .filters = 8, .kernel = 3, .pad = 1}, 4));
    check(grouped_conv({.n = 1, .h = 4, .w = 5, .c = 8, .filters = 32, .kernel = 3, .pad = 1}, 3));
    check(grouped_conv({.n = 1, .h = 5, .w = 5, .c = 3, .filters = 3, .kernel = 3, .pad = 1}, 5));
    check(grouped_conv({.n = 1, .h = 5, .w = 5, .c = 32, .filters = 32, .kernel = 3, .pad = 1}, 2));  // a long sum
    check(grouped_conv({.n = 1, .h = 1, .w = 1, .c = 4, .filters = 4, .kernel = 1}, 4));
    check(grouped_conv({.n = 0, .h = 5, .w = 5, .c = 4, .filters = 4, .kernel = 3}, 4));
    check(grouped_conv({.n = 1, .h = 5, .w = 6, .c = 4, .filters = 4, .kernel = 3, .pad = 1, .swish = true}, 4));
}

// Small groups read their input where it lies: what is made of it is a register tile.
TEST(DefaultSchedule, GroupedConvolutionsPackNothing) {
    for (const Processor& p : processors())
        for (int64_t c : {4, 8, 16}) {
            Compute compute = grouped_conv({.n = 1, .h = 14, .w = 14, .c = c, .filters = c, .kernel = 3, .pad = 1}, 32);
            auto schedule = default_schedule(compute, {{.machine = p.machine, .threads = 1}});
            ASSERT_TRUE(schedule.ok());
            auto lowered = lower(*schedule);
            ASSERT_TRUE(lowered.ok());
            EXPECT_TRUE(lowered->scratch.empty());
            for (const Buffer& b : lowered->kernel.buffers) EXPECT_NE(b.scope, Scope::Local) << p.name << " " << b.name;
        }
}

TEST(DefaultSchedule, DepthwiseConvolutionsAndPools) {
    for (int64_t c : {1, 3, 16, 33}) {
        check(depthwise(6, 7, c, 3, 1, 1));
        check(depthwise(7, 5, c, 3, 2, 1));
        check(max_pool(9, 8, c, 3, 2, 1));
    }
    check(depthwise(9, 9, 8, 5, 1, 2));
    check(depthwise(11, 11, 4, 9, 1, 4));
    check(depthwise(2, 2, 16, 5, 1, 2));  // no place without padding
    check(depthwise(1, 40, 16, 3, 1, 1));
    check(max_pool(4, 4, 16, 2, 2, 1));
    for (int64_t c : {3, 16, 40}) check(depthwise(8, 17, c, 3, 1, 1, true));
}

// Threads that share the rows of A, and meet at no cost: packed once, with edges, a batch, a window, blocks of k.
TEST(DefaultSchedule, ManyThreadsPackRowsOnce) {
    Compute known_rows = matmul(24, 96, 128, false);
    known_rows.known = {true, false, false};
    for (Processor p : processors()) {
        p.machine.barrier = 0;
        auto nests = [&](const Compute& compute) { return check_on({p}, {16}, compute, {}); };
        EXPECT_EQ(nests(matmul(23, 80, 163, true)), 2) << p.name;
        EXPECT_EQ(nests(conv({.n = 1, .h = 3, .w = 5, .c = 24, .filters = 144, .kernel = 3, .pad = 1})), 2) << p.name;
        EXPECT_GE(nests(batched_matmul(2, 13, 72, 160, true)), 2) << p.name;
        nests(batched_matmul(3, 12, 40, 163, false));
        nests(matmul(12, 80, 400, true));
        nests(linear(13, 72, 300));
        nests(conv({.n = 2, .h = 3, .w = 5, .c = 33, .filters = 64, .kernel = 3, .pad = 1, .swish = true}));
        nests(known_rows);
        EXPECT_EQ(check_on({p}, {1}, matmul(23, 80, 163, true), {}), 0) << p.name;
    }
}

TEST(DefaultSchedule, WindowsHaveOneBodyForAllRows) {
    for (bool swish : {false, true}) {
        auto schedule = default_schedule(depthwise(56, 56, 32, 3, 1, 1, swish), {{.machine = {}, .threads = 1}});
        ASSERT_TRUE(schedule.ok());
        auto lowered = lower(*schedule);
        ASSERT_TRUE(lowered.ok());
        // Where a row begins, inside, and where it ends: each with an init, a sum and what is stored.
        EXPECT_LE(loops_of(lowered->kernel, LoopKind::Vector), swish ? 12 : 9) << to_string(lowered->kernel);
        // The weights lie along the channels.
        ASSERT_EQ(lowered->prepared.size(), 1);
        const Buffer& weights = lowered->kernel.buffers[size_t(lowered->prepared[0])];
        EXPECT_TRUE(weights.shape.back().is_int(32)) << to_string(lowered->kernel);
    }
}

TEST(DefaultSchedule, Reductions) {
    for (int64_t n : {0, 1, 3, 16, 37, 200}) {
        check(reduce_last(5, n, ReduceOp::Sum));
        check(reduce_last(1, n, ReduceOp::Max));
        check(reduce_middle(3, n, 7));
        check(reduce_middle(2, n, 64));
        check(reduce_middle(1, n, 640));
    }
}

TEST(DefaultSchedule, SoftmaxAndLayerNorm) {
    for (int64_t n : {1, 3, 16, 37, 200}) {
        check(softmax(5, n));
        check(layer_norm(3, 2, n));
    }
    check(softmax(symbol("R"), symbol("N")), {{"R", 3}, {"N", 21}});
}

TEST(DefaultSchedule, Maps) {
    check(add_bias({2, 3, 5}, 2));
    check(add_bias({2, 3, 5}, 1));
    check(add_bias({1, 1, 1}, 0));
    check(add_bias({0, 4}, 1));
    check(add_bias({100, 1000}, 1));
    check(add_bias({symbol("N"), 7}, 1), {{"N", 0}});
    check(add_bias({symbol("N"), 7}, 1), {{"N", 5}});
    for (int64_t n : {0, 1, 5, 3000}) check(add_bias({symbol("B"), symbol("N")}, 1), {{"B", 2}, {"N", n}});
    check(transpose({37, 41}, {1, 0}));
    check(transpose({3, 17, 5}, {0, 2, 1}));
    check(transpose({3, 17, 70}, {2, 0, 1}));
    const Compute open =
        parsed("compute t(N) (x: f32[9, N], y: f32[N, 9]) {\n  t for i < N, j < 9: y[i, j] = x[j, i]\n}\n");
    for (int64_t n : {1, 3, 4, 7, 16, 22, 37}) check(open, {{"N", n}});
    check(gather_rows(10, 9, 4));
}

// Axes of one element behind the last larger one do not keep it from the lanes: windows as convolutions of one
// dimension have them, and sums whose dimensions are kept.
TEST(DefaultSchedule, SingleElementsBehindTheLanes) {
    for (const char* text : {"compute window() (x: f32[2, 77], w: f32[1, 28], y: f32[2, 25, 1]) {\n"
                             "  known w\n"
                             "  conv for i < 2, j < 25, l < 1: y[i, j, l] += x[i, 2*j + r] * w[l, r] over r < 28\n}\n",
                             "compute mean() (x: f32[3, 40, 32], y: f32[3, 32, 1, 1]) {\n"
                             "  t: f32[3, 32] global\n"
                             "  sum for i < 3, c < 32: t[i, c] += x[i, r, c] over r < 40\n"
                             "  mean for i < 3, c < 32, h < 1, w < 1: y[i, c, h, w] = t[i, c] / 40.0\n}\n",
                             "compute most() (x: f32[64, 16], y: f32[64, 1]) {\n"
                             "  t: f32[64] global\n"
                             "  max for i < 64: t[i] max= x[i, r] over r < 16\n"
                             "  kept for i < 64, l < 1: y[i, l] = t[i]\n}\n"}) {
        auto compute = parse_compute(text);
        ASSERT_TRUE(compute.ok()) << compute.error().to_string();
        check(*compute);
        for (const Processor& p : processors()) {
            const Kernel kernel = lower(*default_schedule(*compute, {p.machine, 1}))->kernel;
            EXPECT_GE(loops_of(kernel, LoopKind::Vector), 1U) << p.name << "\n" << to_string(kernel);
        }
    }
}

// Rows of fewer elements than a vector has lanes: all in vectors of rows, also where their number is open.
TEST(DefaultSchedule, ShortRowsLieInLanes) {
    for (const Expr& rows : {Expr(37), symbol("N")})
        for (int64_t n : {2, 3}) {
            const Compute compute = softmax(rows, n);
            for (int64_t count : {0, 1, 5, 37}) check(compute, {{"N", count}});
            for (const Processor& p : processors()) {
                if (p.machine.vector_bytes / 4 <= n) continue;
                const Kernel kernel = lower(*default_schedule(compute, {p.machine, 1}))->kernel;
                EXPECT_GE(loops_of(kernel, LoopKind::Vector), 4U) << p.name << "\n" << to_string(kernel);
                EXPECT_LE(loops_of(kernel, LoopKind::Serial), 2U) << p.name << "\n" << to_string(kernel);
            }
        }
}

// One row of unknown length is shared by the threads.
TEST(DefaultSchedule, FewRowsOfUnknownLength) {
    for (const Processor& p : processors()) {
        auto schedule = default_schedule(add_bias({symbol("B"), symbol("N")}, 0), {p.machine, 2});
        ASSERT_TRUE(schedule.ok());
        const Kernel kernel = lower(*schedule)->kernel;
        visit(kernel.body, [&](const Stmt& s) {
            const For* loop = s->as<For>();
            if (!loop || loop->kind != LoopKind::Parallel) return;
            EXPECT_GE(evaluate_int(loop->extent, {{"B", 1}, {"N", 100'000}}).value_or(0), 16) << to_string(kernel);
        });
    }
}

}  // namespace
}  // namespace tessera::default_schedule_test
