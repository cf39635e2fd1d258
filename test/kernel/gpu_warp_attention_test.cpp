// Attention by matrix instructions of one warp: few queries, whose keys are split among blocks, short windows, and all
// attention of targets without warpgroup instructions. What it computes is what the evaluator gives, thread by thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "kernel/gpu/attention/attention_rows.h"
#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_warp_attention_test {
namespace {

using Races = InterpretOptions::Races;
using Change = std::function<void(Inputs&)>;

Program lowered(std::string_view text, const std::string& target) {
    LowerOptions options;
    options.machine = *describe_target(target);
    auto program = from_graph(graph_of(text), options);
    EXPECT_TRUE(program.ok()) << program.error().to_string();
    return std::move(*program);
}

bool calls(const Kernel& kernel, std::string_view prefix) {
    bool found = false;
    visit(kernel.body, [&](const Stmt& s) {
        const Call* call = s->as<Call>();
        found |= call && call->name.starts_with(prefix);
    });
    return found;
}

const Kernel* find_warp_kernel(const Program& program) {
    for (const Kernel& k : program.kernels)
        if ((calls(k, "warps_") || calls(k, "wide_")) && calls(k, "quad_max")) return &k;
    return nullptr;
}

bool splits_keys(const Kernel& kernel) {
    bool found = false;
    visit(kernel.body, [&](const Stmt& s) {
        const For* loop = s->as<For>();
        found |= loop && loop->axis == "block.z";
    });
    return found;
}

Tensor halved(const Tensor& from) {
    if (!is_float(from.dtype())) return from;
    Tensor t = *Tensor::zeros(from.dtype(), from.sizes());
    for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, from.real_at(i) / 2);
    return t;
}

// Values are made small, as the evaluator rounds scores and weights to 16 bits, and the kernel does not.
void expect_one_kernel(const std::string& text, const SymbolValues& symbols = {}, const Change& change = {},
                       unsigned seed = 3, std::optional<bool> splits = {}) {
    auto graph = graph_of(text);
    Inputs inputs = random_inputs(*graph, symbols, seed);
    for (auto& [name, input] : inputs) input = Datum(halved(input.tensor()));
    if (change) change(inputs);
    auto want = evaluate(*graph, inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    for (const char* target : {"sm_80", "sm_90a"}) {
        SCOPED_TRACE(fmt::format("{} seed {}\n{}", target, seed, text));
        const Program program = lowered(text, target);
        const Kernel* kernel = find_warp_kernel(program);
        ASSERT_TRUE(kernel);
        if (splits) {
            EXPECT_EQ(splits_keys(*kernel), *splits);
        }
        auto got = run_program(program, inputs, {.backwards = seed % 2 == 0, .races = Races::Find});
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        for (size_t i = 0; i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
    }
}

struct Sizes {
    int64_t batch = 1, heads = 4, key_heads = 2, queries = 1, depth = 64, columns = 64;
    std::string keys = "M";
};
std::string attention_of(const char* dtype, const Sizes& s, const std::string& inputs = "",
                         const std::string& more = "") {
    return fmt::format(
        "graph g(q: {0}[{1},{2},{4},{5}], k: {0}[{1},{3},{7},{5}], v: {0}[{1},{3},{7},{6}]{8}) {{\n"
        "  return attention(q, k, v{9})\n}}\n",
        dtype, s.batch, s.heads, s.key_heads, s.queries, s.depth, s.columns, s.keys, inputs, more);
}

TEST(GpuWarpAttention, OneQueryOfAnyNumberOfKeys) {
    unsigned seed = 0;
    for (int64_t keys : {1, 63, 64, 200}) {
        ++seed;
        expect_one_kernel(attention_of(seed % 2 ? "bf16" : "f16", {}), {{"M", keys}}, {}, seed, true);
    }
    expect_one_kernel(attention_of("f16", {.keys = "300"}), {}, {}, 5, true);
    expect_one_kernel(attention_of("bf16", {.heads = 1, .key_heads = 1, .keys = "40"}), {}, {}, 6, false);
}

TEST(GpuWarpAttention, HeadsThatShareKeysAreRowsOfOneBlock) {
    const std::string text = attention_of("f16", {.batch = 2, .heads = 8, .key_heads = 2, .queries = 3});
    expect_one_kernel(text, {{"M", 130}});
    for (int64_t queries : {5, 16})  // rows of two and of four squares
        expect_one_kernel(attention_of("bf16", {.heads = 8, .key_heads = 2, .queries = queries, .keys = "70"}));
    // More rows than a block has.
    expect_one_kernel(attention_of("f16", {.heads = 6, .key_heads = 1, .queries = 13, .keys = "33"}));
}

TEST(GpuWarpAttention, HeadsOfManySizes) {
    for (auto [depth, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{8, 8}, {40, 24}, {72, 136}, {128, 128}, {256, 256}, {192, 128}})
        expect_one_kernel(attention_of("f16", {.depth = depth, .columns = columns, .keys = "100"}));
    expect_one_kernel(attention_of("bf16", {.queries = 20, .depth = 256, .columns = 256, .keys = "90"}));
}

void set_row(Inputs& inputs, const std::string& name, int64_t row, double value) {
    const Tensor& from = inputs.at(name).tensor();
    Tensor t = *Tensor::zeros(from.dtype(), from.sizes());
    const int64_t width = t.sizes().back();
    for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, i / width == row ? value : from.real_at(i));
    inputs[name] = Datum(t);
}

TEST(GpuWarpAttention, MasksAndBiases) {
    const SymbolValues sizes{{"M", 150}};
    const Sizes s{.queries = 3};
    expect_one_kernel(attention_of("bf16", s, ", m: bf16[1,4,3,M]", ", m"), sizes);
    expect_one_kernel(attention_of("f16", s, ", m: bool[3,M]", ", m"), sizes);
    expect_one_kernel(attention_of("f16", s, ", m: f16[1,1,1,M]", ", m, is_causal=1"), sizes);
    expect_one_kernel(attention_of("bf16", s, "", ", softcap=2.0, scale=0.3"), sizes);
    expect_one_kernel(attention_of("f16", s, "", ", left_window_size=20, right_window_size=3"), sizes);
    // A query that sees nothing, one all of whose keys are as good as not there, and keys that only one part sees.
    expect_one_kernel(attention_of("bf16", s, ", m: bf16[3,M]", ", m"), sizes, [](Inputs& in) {
        set_row(in, "m", 0, -INFINITY);
        set_row(in, "m", 2, -3e38);
    });
    expect_one_kernel(attention_of("f16", s, ", m: f16[3,M]", ", m"), sizes, [](Inputs& in) {
        Tensor t = *Tensor::zeros(DType::f16, {3, 150});
        for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, i % 150 == 77 ? 0 : -INFINITY);
        in["m"] = Datum(t);
    });
    expect_one_kernel(attention_of("bf16", s), sizes, [](Inputs& in) { set_row(in, "q", 4, NAN); });
}

TEST(GpuWarpAttention, DynamicBatchAndQueries) {
    const std::string text =
        "graph g(q: f16[B,4,1,64], k: f16[B,2,M,64], v: f16[B,2,M,64]) {\n  return attention(q, k, v)\n}\n";
    expect_one_kernel(text, {{"B", 3}, {"M", 90}});
    const std::string many =
        "graph g(q: f16[B,4,N,64], k: f16[B,2,M,64], v: f16[B,2,M,64]) {\n"
        "  return attention(q, k, v, is_causal=1)\n}\n";
    auto graph = graph_of(many);
    for (const char* target : {"sm_80", "sm_90a"}) {
        const Program program = lowered(many, target);
        ASSERT_TRUE(find_warp_kernel(program));
        EXPECT_EQ(program.kernels.size(), 1u) << "which queries see nothing is known from their positions";
        for (int64_t n : {1, 3, 70}) {  // those that split keys, and those that do not
            SCOPED_TRACE(fmt::format("{} queries for {}", n, target));
            Inputs inputs = random_inputs(*graph, {{"B", 2}, {"N", n}, {"M", n + 90}}, 4);
            auto want = evaluate(*graph, inputs);
            ASSERT_TRUE(want.ok()) << want.error().to_string();
            auto got = run_program(program, inputs, {.races = Races::Find});
            ASSERT_TRUE(got.ok()) << got.error().to_string();
            expect_close((*got)[0], (*want)[0]);
        }
    }
}

// Queries that see nothing: before the first key that a mask of positions shows, or of no keys at all.
TEST(GpuWarpAttention, QueriesThatSeeNothing) {
    const std::string text =
        "graph g(q: f16[1,2,N,64], k: f16[1,2,M,64], v: f16[1,2,M,64], p: f16[1,1,N,M]) {\n"
        "  %n = shape(q)\n  %m = shape(k)\n  %a = gather(%n, 2)\n  %b = gather(%m, 2)\n"
        "  %i = range(0, %a, 1)\n  %j = range(0, %b, 1)\n  %i2 = unsqueeze(%i, [1])\n  %j2 = unsqueeze(%j, [0])\n"
        "  %later = less(%j2, %i2)\n  %low = sub(%i2, 3)\n  %near = less_or_equal(%low, %j2)\n"
        "  %seen = and(%later, %near)\n  return attention(q, k, v, %seen)\n}\n";
    for (auto [n, m] : std::vector<std::pair<int64_t, int64_t>>{{4, 20}, {9, 3}, {1, 0}, {30, 70}})
        expect_one_kernel(text, {{"N", n}, {"M", m}});
}

// Q, K and V side by side in one tensor, a bias for each head and a mask for each window.
TEST(GpuWarpAttention, Windows) {
    const char* window =
        "graph g(x: f16[6,49,288], b: f16[3,49,49], m: f16[2,49,49]) {\n"
        "  %x5 = reshape(x, [6,49,3,3,32])\n  %t = transpose(%x5, perm=[2,0,3,1,4])\n"
        "  %q0, %k0, %v0 = split(%t, axis=0, num_outputs=3)\n"
        "  %q1 = reshape(%q0, [6,3,49,32])\n  %k1 = reshape(%k0, [6,3,49,32])\n  %v = reshape(%v0, [6,3,49,32])\n"
        "  %s = cast([0.1767767], to=10)\n  %q = mul(%q1, %s)\n  %k = transpose(%k1, perm=[0,1,3,2])\n"
        "  %p = matmul(%q, %k)\n  %b4 = reshape(b, [1,3,49,49])\n  %pb = add(%p, %b4)\n"
        "  %p5 = reshape(%pb, [3,2,3,49,49])\n  %m5 = reshape(m, [1,2,1,49,49])\n  %pm = add(%p5, %m5)\n"
        "  %p4 = reshape(%pm, [6,3,49,49])\n  %e = softmax(%p4, axis=-1)\n  %o = matmul(%e, %v)\n"
        "  %o1 = transpose(%o, perm=[0,2,1,3])\n  return reshape(%o1, [6,49,96])\n}\n";
    auto smaller = [](Inputs& in) {
        for (const char* name : {"x", "b", "m"}) {
            Tensor t = *Tensor::zeros(DType::f16, in.at(name).tensor().sizes());
            for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, in.at(name).tensor().real_at(i) / 8);
            in[name] = Datum(t);
        }
    };
    expect_one_kernel(window, {}, smaller, 3, false);
    EXPECT_EQ(lowered(window, "sm_90a").kernels.size(), 1u);
}

TEST(GpuWarpAttention, RandomShapes) {
    std::mt19937 random(7);
    auto draw = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
    for (unsigned i = 0; i < 12; ++i) {
        Sizes s;
        s.batch = draw(1, 2), s.key_heads = draw(1, 3), s.heads = s.key_heads * draw(1, 4), s.queries = draw(1, 9);
        s.depth = 8 * draw(1, 12), s.columns = 8 * draw(1, 12);
        const bool dynamic = draw(0, 1);
        const int64_t keys = draw(1, 300);
        if (!dynamic) s.keys = std::to_string(keys);
        const std::string mask = fmt::format(", m: f16[{},{}]", s.queries, s.keys);
        const bool masked = draw(0, 1);
        expect_one_kernel(attention_of("f16", s, masked ? mask : "", masked ? ", m" : ""),
                          dynamic ? SymbolValues{{"M", keys}} : SymbolValues{}, {}, i);
    }
}

TEST(GpuWarpAttention, PartsFillTheDevice) {
    const Machine machine = *describe_target("sm_90a");
    auto tiles_of = [](int64_t rows, std::optional<int64_t> keys, int64_t head, const Machine& on) {
        return choose_warp_tiles({.rows = rows, .keys = keys, .blocks = 8, .depth = head, .columns = head}, on);
    };
    const WarpTiles tiles = tiles_of(4, 8192, 128, machine);
    EXPECT_TRUE(tiles.wide);
    EXPECT_EQ(tiles.keys, 128);
    EXPECT_EQ(tiles_of(4, 8192, 128, *describe_target("sm_80")).rows, 16);
    EXPECT_FALSE(tiles_of(4, 49, 32, machine).wide) << "one tile of few rows";
    const int64_t few = choose_key_parts(8, 8192, tiles, true, machine),
                  many = choose_key_parts(128, 8192, tiles, true, machine);
    EXPECT_GE(few * 8, 120);
    EXPECT_EQ(many, 1) << "128 blocks are as good as one for each SM";
    EXPECT_GT(choose_key_parts(70, 8192, tiles, true, machine), 1);
    EXPECT_EQ(choose_key_parts(4096, 8192, tiles, true, machine), 1);
    EXPECT_EQ(choose_key_parts(8, 64, tiles, true, machine), 1);
    EXPECT_EQ(choose_key_parts({}, {}, tiles, false, machine), 1);
    // Every head has tiles on every target.
    for (const char* target : {"sm_80", "sm_86", "sm_90a"})
        for (int64_t rows : {1, 20, 1000})
            for (int64_t head = 8; head <= 256; head += 8)
                EXPECT_GT(tiles_of(rows, {}, head, *describe_target(target)).rows, 0) << target << head;
}

}  // namespace
}  // namespace tessera::test::gpu_warp_attention_test
