// Kernels with variants behind guards mean the same as plain nests at every size, and exactly one variant runs.
#include "kernel/cpu/lower_variants.h"

#include <gtest/gtest.h>

#include "kernel/cpu/contraction_tiles.h"
#include "kernel/run_sample.h"

namespace tessera::lower_variants_test {
namespace {

using namespace sample;

Machine neon() {
    Machine m;
    m.lane_multiply = true;
    m.fma_pipes = 4;
    return m;
}
Machine avx512() {
    Machine m;
    m.vector_bytes = 64;
    m.load_broadcast = m.masked = true;
    return m;
}

size_t taken(const std::vector<Choice>& choices) {
    size_t n = 0;
    for (const Choice& c : choices) n += bool(c.decision);
    return n;
}

// Runs it at these sizes of M beside the plain nests. Gives how many variants there are besides the default.
size_t check(const Compute& compute, const std::vector<int64_t>& sizes, SymbolValues symbols = {}) {
    size_t most = 0;
    for (const Machine& machine : {neon(), avx512()})
        for (int threads : {1, 2}) {
            std::vector<Choice> choices;
            auto lowered = lower_variants(compute, {machine, threads}, choices);
            EXPECT_TRUE(lowered.ok()) << lowered.error().to_string();
            if (!lowered.ok()) return 0;
            EXPECT_TRUE(verify(lowered->kernel).ok())
                << verify(lowered->kernel).error().to_string() << to_string(lowered->kernel);
            auto again = parse_kernels(to_string(lowered->kernel));
            EXPECT_TRUE(again.ok()) << again.error().to_string();
            most = std::max(most, taken(choices));
            for (int64_t size : sizes) {
                SCOPED_TRACE(fmt::format("{}, {} rows, {} threads", compute.name, size, threads));
                symbols["M"] = size;
                std::vector<Tensor> expected = random_parameters(compute, symbols), got = expected;
                run_kernel(plain_nests(compute), expected, symbols);
                run_lowered(*lowered, got, symbols);
                for (size_t i = 0; i < compute.params; ++i) EXPECT_LE(distance(got[i], expected[i]), 1e-4);
            }
        }
    return most;
}

TEST(LowerVariants, ProductsOfAnyNumberOfRows) {
    const std::vector<int64_t> sizes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31};
    const Expr m = symbol("M");
    EXPECT_GE(check(matmul(m, 260, 130, true), sizes), 2u);
    EXPECT_GE(check(linear(m, 50, 12), sizes), 1u);
    EXPECT_GE(check(project_to_heads(symbol("B"), m, 3, 4, 10), sizes, {{"B", 2}}), 1u);
}

// A convolution as ONNX has it: images of 5 lines of M places.
Compute conv_of_lines(int64_t filters, int64_t channels) {
    auto made = parse_compute(fmt::format(
        "compute conv(M) (x: f32[2, {0}, 5, M], w: f32[{1}, {0}, 3, 3], y: f32[2, {1}, 5, M]) {{\n  known w\n"
        "  conv for n < 2, f < {1}, i < 5, j < M: y[n, f, i, j] += select(0 < i + p && i + p <= 5 && (0 < j + q && "
        "j + q <= M), x[n, c, i + p - 1, j + q - 1], 0.0) * w[f, c, p, q] over c < {0}, p < 3, q < 3\n}}\n",
        channels, filters));
    EXPECT_TRUE(made.ok()) << made.error().to_string();
    return made.ok() ? *made : Compute{};
}

TEST(LowerVariants, ProductsOfAnyNumberOfColumns) {
    const std::vector<int64_t> sizes{0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 33};
    const Expr m = symbol("M");
    EXPECT_GE(check(matmul(33, m, 40, false), sizes), 1u);
    EXPECT_GE(check(batched_matmul(2, symbol("B"), m, 20, false), sizes, {{"B", 5}}), 1u);
    EXPECT_GE(check(conv_of_lines(9, 3), sizes), 1u);  // from a copy with filled edges
    EXPECT_GE(check(conv_of_lines(70, 2), {1, 3, 17}), 1u);
    (void)check(batched_matmul(1, 7, m * 8 + 24, 5, false), {0, 1, 2, 9});  // never as few as four or sixteen
}

// The text of the traces cut at the comments that name their kernel.
std::vector<std::string> blocks_of(const std::string& traces, const std::string& name) {
    std::vector<std::string> blocks;
    const std::string begin = "// " + name;
    for (size_t at = traces.find(begin); at != std::string::npos;) {
        size_t next = traces.find("\n" + begin, at);
        blocks.push_back(traces.substr(at, next == std::string::npos ? next : next + 1 - at));
        at = next == std::string::npos ? next : next + 1;
    }
    return blocks;
}

// What a trace begins with: the Compute that its comment has, where that is not the one given.
Compute start_of(const Compute& compute, const std::string& trace) {
    const std::string before = "//   ";
    std::string text;
    for (size_t at = trace.find("\n" + before); at != std::string::npos;) {
        const size_t end = trace.find('\n', at + 1);
        text += trace.substr(at + 1 + before.size(), end - at - before.size());
        at = trace.compare(end + 1, before.size(), before) == 0 ? end : std::string::npos;
    }
    if (text.empty()) return compute;
    auto made = parse_compute(text);
    EXPECT_TRUE(made.ok()) << made.error().to_string() << text;
    return made.ok() ? *made : compute;
}

// The kernel that a trace gives when it is read and replayed.
std::string replayed(const Compute& given, const std::string& trace) {
    const Compute compute = start_of(given, trace);
    auto steps = Schedule::parse_trace(trace);
    EXPECT_TRUE(steps.ok()) << steps.error().to_string() << trace;
    if (!steps.ok()) return {};
    auto schedule = Schedule::replay(compute, *steps);
    EXPECT_TRUE(schedule.ok()) << schedule.error().to_string() << trace;
    return schedule.ok() ? to_string(lower(*schedule)->kernel) : "";
}

TEST(LowerVariants, TracesCanBeReplayed) {
    std::vector<Choice> choices;
    for (const Compute& compute : {matmul(7, 40, 33, true), softmax(symbol("M"), 20)}) {
        std::string traces;
        auto lowered = lower_variants(compute, {neon(), 2}, choices, &traces);
        ASSERT_TRUE(lowered.ok());
        EXPECT_EQ(replayed(compute, traces), to_string(lowered->kernel)) << traces;
    }
    std::string traces;
    const Compute open = matmul(symbol("M"), 260, 130, true);
    ASSERT_TRUE(lower_variants(open, {neon(), 2}, choices, &traces).ok());
    const std::vector<std::string> blocks = blocks_of(traces, open.name);
    ASSERT_GE(blocks.size(), 3u) << traces;
    EXPECT_NE(blocks[0].find(" where "), std::string::npos) << traces;
    EXPECT_NE(blocks.back().find(" for all other sizes"), std::string::npos) << traces;
    EXPECT_NE(replayed(open, blocks[0]), replayed(open, blocks[1]));
}

TEST(LowerVariants, TracesOfHalvedProductsSayWhatTheyApplyTo) {
    Compute compute = matmul(32, 48, 32, true);
    compute.halvings = 1;
    std::vector<Choice> choices;
    std::string traces, halved;
    auto lowered = lower_variants(compute, {neon(), 1}, choices, &traces);
    ASSERT_TRUE(lowered.ok());
    EXPECT_NE(traces.find("Strassen with 1 halving"), std::string::npos) << traces;
    for (size_t at = traces.find("\n//   "); at != std::string::npos; at = traces.find("\n//   ", at + 1))
        halved += traces.substr(at + 6, traces.find('\n', at + 1) - at - 5);
    auto start = parse_compute(halved);
    ASSERT_TRUE(start.ok()) << start.error().to_string() << halved;
    EXPECT_EQ(replayed(*start, traces), to_string(lowered->kernel));
}

TEST(LowerVariants, NoneWithoutNeed) {
    EXPECT_EQ(check(matmul(7, 40, 33, true), {1}), 0u);  // the size is known
    EXPECT_EQ(check(softmax(symbol("M"), 20), {0, 1, 9}), 0u);
    EXPECT_EQ(check(matmul(symbol("M") * 4096, 8, 5, true), {0, 1}), 0u);  // never few
}

TEST(LowerVariants, ALateBForAFewRows) {
    EXPECT_EQ(check(matmul(symbol("M"), 40, 33, false), {0, 1, 2, 4, 5, 9}), 1u);
    EXPECT_EQ(check(matmul(symbol("M"), symbol("N"), 33, false), {0, 1, 4, 5, 13}, {{"N", 21}}), 2u);
}

TEST(LowerVariants, RowsOfOpenLength) {
    for (int64_t n : {1, 2, 7, 15, 16, 40}) {
        EXPECT_EQ(check(softmax(symbol("M"), symbol("N")), {0, 1, 3, 4, 5, 9}, {{"N", n}}), 1u);
        auto compute = parse_compute(
            "compute largest(M, N) (x: f32[M, 3, N], y: f32[M, 3]) {\n  t: f32[M, 3] global\n"
            "  most for i < M, j < 3: t[i, j] max= x[i, j, k] over k < N\n"
            "  out for i < M, j < 3: y[i, j] = t[i, j] * 2.0\n}\n");
        ASSERT_TRUE(compute.ok()) << compute.error().to_string();
        EXPECT_EQ(check(*compute, {0, 1, 2, 7}, {{"N", n}}), 1u);
    }
}

// Pools and sums whose lines are of open length: tiles that fill a line, and others for shorter ones.
TEST(LowerVariants, LinesOfOpenLength) {
    for (const char* text : {"compute pool(M) (x: f32[3, 12, M], y: f32[3, 5, M]) {\n"
                             "  most for c < 3, i < 5, j < M: y[c, i, j] max= x[c, 2*i + r, j] over r < 3\n}\n",
                             "compute pool(M) (x: f32[3, 7, 2*M + 1], y: f32[3, 5, M]) {\n"
                             "  most for c < 3, i < 5, j < M: y[c, i, j] max= x[c, i + r, 2*j + q] over r < 3, q < 3\n"
                             "}\n",
                             "compute total(M) (x: f32[3, 70, M], y: f32[3, M]) {\n"
                             "  sum for c < 3, j < M: y[c, j] += x[c, i, j] over i < 70\n}\n"}) {
        auto compute = parse_compute(text);
        ASSERT_TRUE(compute.ok()) << compute.error().to_string();
        EXPECT_GE(check(*compute, {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 70, 128, 131}), 3u) << text;
    }
}

// Every variant writes its number, so that the result tells which of them ran.
TEST(LowerVariants, TheFirstWhoseGuardHolds) {
    for (LoopKind kind : {LoopKind::Serial, LoopKind::Parallel}) {
        auto part = [&](int64_t value, bool scratch) {
            Lowered l;
            l.kernel.symbols = {"M"};
            l.kernel.buffers = {{"y", DType::i64, {Expr(2)}}};
            if (scratch) {
                l.kernel.buffers.push_back({"t", DType::i64, {symbol("M")}});
                l.scratch = {1};
            }
            l.kernel.params = l.kernel.buffers.size();
            Expr i = index_var("i", 2);
            For loop{i, 2, kind, {}, {}, store(0, {i}, int_const(value, DType::i64))};
            l.kernel.body = for_loop(std::move(loop));
            return l;
        };
        const Expr m = symbol("M");
        Lowered joined = join_variants({{le(m, 1), part(1, false)}, {le(m, 3), part(2, true)}}, part(3, true));
        ASSERT_TRUE(verify(joined.kernel).ok()) << verify(joined.kernel).error().to_string();
        EXPECT_EQ(joined.scratch.size(), 2u);
        EXPECT_EQ(joined.kernel.params, 3u);
        for (auto [size, ran] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 1}, {2, 2}, {3, 2}, {4, 3}}) {
            // Scratch of what does not run takes no memory.
            auto bytes = [&](size_t slot) {
                return *evaluate_int(joined.kernel.buffers[slot].shape[0], {{"M", size}});
            };
            EXPECT_EQ(bytes(1), ran == 2 ? size : 0);
            EXPECT_EQ(bytes(2), ran == 3 ? size : 0);
            std::vector<Tensor> buffers{*Tensor::zeros(DType::i64, {2})};
            run_kernel(joined.kernel, buffers, {{"M", size}});
            EXPECT_EQ(buffers[0].int_at(0), ran);
            EXPECT_EQ(buffers[0].int_at(1), ran);
        }
    }
}

TEST(LowerVariants, TilesOfFewRowsAreFastEnoughForEverySize) {
    std::vector<int64_t> sizes;
    for (int64_t m = 1; m <= 100; ++m) sizes.push_back(m);
    for (const Machine& machine : {neon(), avx512()}) {
        ContractionShape shape{.m = 1024, .n = 768, .k = 768, .m_known = false, .packed_ahead = true};
        const ContractionTiles tiles = choose_tiles(shape, machine, 1);
        std::vector<RowTile> row_tiles = choose_row_tiles(shape, tiles, sizes, machine);
        ASSERT_GE(row_tiles.size(), 3u);
        EXPECT_LE(row_tiles.size(), 5u);
        EXPECT_EQ(row_tiles[0].rows, 1);
        EXPECT_EQ(row_tiles.back().rows, tiles.mr);
        for (size_t i = 1; i < row_tiles.size(); ++i) EXPECT_GT(row_tiles[i].cost, row_tiles[i - 1].cost);
        // The panels of B are those of the default.
        shape.tile_rows = 2;
        const ContractionTiles few = choose_tiles(shape, machine, 1);
        EXPECT_EQ(few.mr, 2);
        EXPECT_EQ(few.nr, tiles.nr);
        EXPECT_EQ(few.kc, tiles.kc);
    }
}

}  // namespace
}  // namespace tessera::lower_variants_test
