// Attention in one kernel for blocks of eight warps, thread by thread: what it computes is what the evaluator gives,
// whatever the scores are made of, and no step of its copies and products can be left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernel/analyse/attention_score.h"
#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_attention_test {
namespace {

using Races = InterpretOptions::Races;
using Change = std::function<void(Inputs&)>;

Program attention_for_blocks(std::string_view text) {
    LowerOptions options;
    options.machine = *describe_target("sm_90a");
    auto program = from_graph(graph_of(text), options);
    EXPECT_TRUE(program.ok()) << program.error().to_string();
    return std::move(*program);
}

const Kernel* find_team_kernel(const Program& program) {
    for (const Kernel& k : program.kernels)
        if (to_string(k).find("call wgmma_add") != std::string::npos) return &k;
    return nullptr;
}

void expect_one_kernel(const std::string& text, const SymbolValues& symbols = {}, const Change& change = {},
                       unsigned seed = 3) {
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, text));
    auto graph = graph_of(text);
    Inputs inputs = random_inputs(*graph, symbols, seed);
    if (change) change(inputs);
    auto want = evaluate(*graph, inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    const Program program = attention_for_blocks(text);
    ASSERT_TRUE(find_team_kernel(program));
    auto got = run_program(program, inputs, {.backwards = seed % 2 == 0, .races = Races::Find});
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    for (size_t i = 0; i < want->size(); ++i) expect_close((*got)[i], (*want)[i]);
}

std::string attention_of(const char* dtype, const std::string& more_inputs = "", const std::string& more = "") {
    return fmt::format(
        "graph g(q: {0}[1,1,N,64], k: {0}[1,1,M,64], v: {0}[1,1,M,64]{1}) {{\n  return attention(q, k, v{2})\n}}\n",
        dtype, more_inputs, more);
}

TEST(GpuAttention, AnyLength) {
    unsigned seed = 0;
    for (auto [n, m] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 200}, {130, 129}}) {
        ++seed;
        expect_one_kernel(attention_of(seed % 2 ? "bf16" : "f16"), {{"N", n}, {"M", m}}, {}, seed);
    }
    expect_one_kernel(
        "graph g(q: bf16[2,1,80,64], k: bf16[2,1,256,64], v: bf16[2,1,256,64]) {\n  return attention(q, k, v)\n}\n");
}

TEST(GpuAttention, LaterKeysAreNotLookedAt) {
    for (int64_t n : {1, 150}) expect_one_kernel(attention_of("bf16", "", ", is_causal=1"), {{"N", n}, {"M", n}});
    expect_one_kernel(attention_of("f16", "", ", is_causal=1"), {{"N", 140}, {"M", 20}});
    const Program program = attention_for_blocks(attention_of("bf16", "", ", is_causal=1"));
    ASSERT_TRUE(find_team_kernel(program));
    EXPECT_THAT(to_string(*find_team_kernel(program)), testing::HasSubstr("with uneven=1"));
    // A mask that was computed when the graph was.
    const std::string known =
        "graph g(q: f16[1,1,140,64], k: f16[1,1,140,64], v: f16[1,1,140,64]) {\n"
        "  return attention(q, k, v, is_causal=1)\n}\n";
    expect_one_kernel(known);
    EXPECT_THAT(to_string(*find_team_kernel(attention_for_blocks(known))), testing::HasSubstr("with uneven=1"));
    // Behind keys of the past: some tiles are seen in part by all queries of a block.
    const std::string past =
        "graph g(q: f16[1,1,N,64], k: f16[1,1,N,64], v: f16[1,1,N,64], a: f16[1,1,P,64], b: f16[1,1,P,64]) {\n"
        "  %y, %ks, %vs = attention(q, k, v, _, a, b, is_causal=1)\n  return %y, %ks, %vs\n}\n";
    expect_one_kernel(past, {{"N", 150}, {"P", 70}});
    EXPECT_THAT(to_string(*find_team_kernel(attention_for_blocks(past))), testing::HasSubstr("keys_masked"));
}

void set_row(Inputs& inputs, const std::string& name, int64_t row, double value) {
    const Tensor& from = inputs.at(name).tensor();
    Tensor t = *Tensor::zeros(from.dtype(), from.sizes());
    const int64_t width = t.sizes().back();
    for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, i / width == row ? value : from.real_at(i));
    inputs[name] = Datum(t);
}

TEST(GpuAttention, MasksAndBiases) {
    const SymbolValues sizes{{"N", 18}, {"M", 150}};
    expect_one_kernel(attention_of("bf16", ", m: bf16[1,1,N,M]", ", m"), sizes);
    expect_one_kernel(attention_of("f16", ", m: bool[N,M]", ", m"), sizes);
    expect_one_kernel(attention_of("f16", ", m: f16[1,1,1,M]", ", m, is_causal=1"), sizes);
    expect_one_kernel(attention_of("bf16", "", ", softcap=2.0"), sizes);
    expect_one_kernel(attention_of("f16", "", ", left_window_size=20, right_window_size=3"), sizes);
    // A query that sees nothing, and one all of whose keys are as good as not there.
    expect_one_kernel(attention_of("bf16", ", m: bf16[N,M]", ", m"), sizes, [](Inputs& in) {
        set_row(in, "m", 3, -INFINITY);
        set_row(in, "m", 5, -3e38);
    });
    expect_one_kernel(attention_of("bf16"), sizes, [](Inputs& in) { set_row(in, "q", 4, NAN); });
}

// As exporters write it: rounded at each step, heads side by side, masks made of smaller ones, no -inf.
TEST(GpuAttention, WrittenOutIn16Bits) {
    const char* written =
        "graph g(x: f16[2,150,64], w: f16[64,384], c: f16[384], m: bool[2,150]) {\n"
        "  %a = matmul(x, w)\n  %y = add(%a, c)\n  %qs, %ks, %vs = split(%y, axis=2, num_outputs=3)\n"
        "  %s = cast([0.125], to=10)\n  %qm = mul(%qs, %s)\n"
        "  %q0 = reshape(%qm, [2,150,2,64])\n  %k0 = reshape(%ks, [2,150,2,64])\n  %v0 = reshape(%vs, [2,150,2,64])\n"
        "  %q = transpose(%q0, perm=[0,2,1,3])\n  %k = transpose(%k0, perm=[0,2,3,1])\n"
        "  %v = transpose(%v0, perm=[0,2,1,3])\n  %p = matmul(%q, %k)\n"
        "  %n = range(0, 150, 1)\n  %r = reshape(%n, [1,1,150,1])\n  %l = reshape(%n, [1,1,1,150])\n"
        "  %ca = less_or_equal(%l, %r)\n  %m4 = reshape(m, [2,1,1,150])\n  %am = and(%ca, %m4)\n"
        "  %b0 = where(%am, [0.0], [-65504.0])\n  %b = cast(%b0, to=10)\n  %t = add(%p, %b)\n"
        "  %e = softmax(%t, axis=-1)\n  %nan = is_nan(%e)\n  %z = cast([0.0], to=10)\n  %f = where(%nan, %z, %e)\n"
        "  %o = matmul(%f, %v)\n  %o1 = transpose(%o, perm=[0,2,1,3])\n  return reshape(%o1, [2,150,128])\n}\n";
    // Small, since the evaluator rounds scores and weights; and each query sees the first key.
    expect_one_kernel(written, {}, [](Inputs& in) {
        for (const char* name : {"x", "c"}) {
            Tensor t = *Tensor::zeros(DType::f16, in.at(name).tensor().sizes());
            for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, in.at(name).tensor().real_at(i) / 16);
            in[name] = Datum(t);
        }
        Tensor m = *Tensor::zeros(DType::boolean, {2, 150});
        for (int64_t i = 0; i < m.elements(); ++i) m.set_real(i, i % 150 == 0 ? 1 : in.at("m").tensor().real_at(i));
        in["m"] = Datum(m);
    });
    const Program program = attention_for_blocks(written);
    EXPECT_EQ(program.kernels.size(), 2u) << "the projection, with its bias, and attention";
    // After the last element of a head comes another's.
    std::string narrow = written;
    for (size_t at; (at = narrow.find("2,64]")) != std::string::npos;) narrow.replace(at, 5, "4,32]");
    EXPECT_FALSE(find_team_kernel(attention_for_blocks(narrow)));
    EXPECT_EQ(attention_for_blocks(narrow).kernels.size(), 2u) << "threads copy its tiles";
}

// Keys that are computed, rounded and then transposed, with a mask that is looked up by indices.
TEST(GpuAttention, MasksThatAreLookedUp) {
    for (const auto& [dtype, code, least] : {std::tuple("f16", 10, "-65504.0"), std::tuple("bf16", 16, "-3e38")}) {
        const std::string text = fmt::format(
            "graph g(q: {0}[2,2,70,64], x: {0}[2,70,128], c: f32[70,64], v: {0}[2,2,70,64], m: i64[2,70]) {{\n"
            "  %x0 = cast(x, to=1)\n  %x1 = reshape(%x0, [2,70,2,64])\n  %x2 = transpose(%x1, perm=[0,2,1,3])\n"
            "  %a = mul(%x2, c)\n  %h0, %h1 = split(%x2, axis=3, num_outputs=2)\n  %n = neg(%h1)\n"
            "  %r = concat(%n, %h0, axis=3)\n  %rc = mul(%r, c)\n  %k0 = add(%a, %rc)\n  %k = cast(%k0, to={1})\n"
            "  %kt = transpose(%k, perm=[0,1,3,2])\n  %p = matmul(q, %kt)\n"
            "  %m0 = cast(m, to=9)\n  %i0 = range(0, 2, 1)\n  %i1 = reshape(%i0, [2,1,1,1,1])\n"
            "  %i2 = expand(%i1, [2,1,1,70,1])\n  %j0 = range(0, 70, 1)\n  %j1 = reshape(%j0, [1,1,1,70,1])\n"
            "  %j2 = expand(%j1, [2,1,1,70,1])\n  %ij = concat(%i2, %j2, axis=4)\n  %g = gather_nd(%m0, %ij)\n"
            "  %b0 = where(%g, [0.0], [{2}])\n  %b = cast(%b0, to={1})\n  %t = add(%p, %b)\n"
            "  %e = softmax(%t, axis=-1)\n  return matmul(%e, v)\n}}\n",
            dtype, code, least);
        // Small, since the evaluator rounds scores and weights; and the first key is seen.
        expect_one_kernel(text, {}, [](Inputs& in) {
            for (const char* name : {"q", "x"}) {
                Tensor t = *Tensor::zeros(in.at(name).tensor().dtype(), in.at(name).tensor().sizes());
                for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, in.at(name).tensor().real_at(i) / 16);
                in[name] = Datum(t);
            }
            Tensor m = *Tensor::zeros(DType::i64, {2, 70});
            for (int64_t i = 0; i < m.elements(); ++i) m.set_real(i, i % 70 == 0 || i % 3 == 1 ? 1 : 0);
            in["m"] = Datum(m);
        });
        EXPECT_THAT(to_string(*find_team_kernel(attention_for_blocks(text))), testing::Not(testing::HasSubstr("i64[")));
    }
}

TEST(GpuAttention, HeadsOfEverySizeAndGroup) {
    for (int64_t head : {8, 80, 128})
        expect_one_kernel(
            fmt::format("graph g(q: bf16[1,1,N,{0}], k: bf16[1,1,N,{0}], v: bf16[1,1,N,72]) {{\n  return attention(q, "
                        "k, v)\n}}\n",
                        head),
            {{"N", 40}});
    expect_one_kernel(
        "graph g(q: f16[2,N,256], k: f16[2,N,128], v: f16[2,N,128]) {\n"
        "  return attention(q, k, v, q_num_heads=4, kv_num_heads=2, is_causal=1)\n}\n",
        {{"N", 33}});
}

TEST(GpuAttention, LongHeadsHaveSmallerTilesOfKeys) {
    for (auto [depth, columns] : std::vector<std::pair<int64_t, int64_t>>{{256, 256}, {160, 64}, {64, 192}})
        for (const char* causal : {"", ", is_causal=1"})
            expect_one_kernel(fmt::format("graph g(q: f16[1,1,N,{0}], k: f16[1,1,M,{0}], v: f16[1,1,M,{1}]) {{\n"
                                          "  return attention(q, k, v{2})\n}}\n",
                                          depth, columns, causal),
                              {{"N", 140}, {"M", 150}});
    expect_one_kernel(
        "graph g(q: bf16[1,1,192,256], k: bf16[1,1,192,256], v: bf16[1,1,192,256]) {\n"
        "  return attention(q, k, v, is_causal=1)\n}\n");
}

TEST(GpuAttention, WhatDoesNotSuitIsSeveralKernels) {
    for (const char* text :
         {"graph g(q: f32[1,2,80,64], k: f32[1,2,80,64], v: f32[1,2,80,64]) {\n  return attention(q, k, v)\n}\n",
          "graph g(q: f16[1,2,80,60], k: f16[1,2,80,60], v: f16[1,2,80,64]) {\n  return attention(q, k, v)\n}\n",
          "graph g(q: f16[1,2,80,264], k: f16[1,2,80,264], v: f16[1,2,80,64]) {\n  return attention(q, k, v)\n}\n"})
        EXPECT_FALSE(find_team_kernel(attention_for_blocks(text))) << text;
}

// The kernel without one of its lines, or with two exchanged.
Status without_line(const std::string& text, const std::string& line, std::vector<Tensor>& buffers,
                    const SymbolValues& symbols, const std::string& instead = "") {
    const size_t at = text.find(line);
    EXPECT_NE(at, std::string::npos) << line;
    std::string changed = text;
    const size_t end = changed.find('\n', at);
    changed.replace(at, end - at, instead);
    auto kernels = parse_kernels(changed);
    EXPECT_TRUE(kernels.ok()) << kernels.error().to_string();
    return interpret((*kernels)[0], buffers, symbols);
}

TEST(GpuAttention, NoStepCanBeLeftOut) {
    const std::string text =
        "graph g(q: bf16[1,1,70,64], k: bf16[1,1,M,64], v: bf16[1,1,M,64]) {\n  return attention(q, k, v)\n}\n";
    const Program program = attention_for_blocks(text);
    const Kernel* kernel = find_team_kernel(program);
    ASSERT_TRUE(kernel);
    const std::string whole = to_string(*kernel);
    const SymbolValues symbols{{kernel->symbols[0], 150}};
    auto fresh = [&] {
        std::mt19937 gen(9);
        std::vector<Tensor> buffers;
        for (size_t i = 0; i < kernel->params; ++i) {
            Sizes sizes;
            for (const Expr& e : kernel->buffers[i].shape) sizes.push_back(*evaluate_int(e, symbols));
            buffers.push_back(random_tensor(kernel->buffers[i].dtype, sizes, gen));
        }
        return buffers;
    };
    std::vector<Tensor> want = fresh();
    ASSERT_TRUE(interpret(*kernel, want, symbols).ok());
    for (const char* line : {"call wait_tile(tile_k", "call free_tile(tile_k", "call copy_tile(tile_v",
                             "call free_tile(tile_q", "call wait_product(scores", "call wait_product(out"}) {
        std::vector<Tensor> got = fresh();
        EXPECT_FALSE(without_line(whole, line, got, symbols).ok()) << line;
    }
    // A tile that is freed while the product that reads it goes on, and maxima that threads keep to themselves.
    for (const auto& [line, exchanged] : std::vector<std::pair<std::string, bool>>{
             {"call wait_product(scores", true}, {"call quad_max(", false}, {"call quad_sum(", false}}) {
        std::vector<Tensor> got = fresh();
        const size_t at = whole.find(line), end = whole.find('\n', at), next = whole.find('\n', end + 1);
        ASSERT_NE(at, std::string::npos) << line;
        std::string changed = whole.substr(0, at) + "\n" + whole.substr(end);
        if (exchanged)
            changed = whole.substr(0, at) + whole.substr(end + 1, next - end) + whole.substr(at, end - at) +
                      whole.substr(next);
        auto kernels = parse_kernels(changed);
        ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
        ASSERT_TRUE(interpret((*kernels)[0], got, symbols).ok());
        int64_t differ = 0;
        const Tensor &a = got.back(), &b = want.back();
        for (int64_t i = 0; i < a.elements(); ++i) differ += !(std::fabs(a.real_at(i) - b.real_at(i)) < 1e-2);
        EXPECT_GT(differ, 0) << line;
    }
}

TEST(GpuAttention, ScoresAreTakenApart) {
    const Expr s = load(0, DType::f32, {}), q = index_var("q", 64), k = index_var("k", 64), n = symbol("n");
    const Expr never = constant(-INFINITY, DType::f32), zero = constant(0, DType::f32);
    const Expr rounded = cast(cast(s, DType::bf16), DType::f32) * constant(0.5, DType::f32);
    const AttentionScore score = split_score(rounded + select(le(k, q + n), zero, never));
    ASSERT_EQ(score.conditions.size(), 1u);
    EXPECT_EQ(score.value, s);
    EXPECT_EQ(score.scale, 0.5);
    ASSERT_TRUE(causal_offset(score.conditions[0], q, k));
    EXPECT_EQ(*causal_offset(score.conditions[0], q, k), n);
    EXPECT_FALSE(causal_offset(le(q, k), q, k));
    EXPECT_FALSE(causal_offset(le(k * 2, q), q, k));
    EXPECT_EQ(split_score(s * constant(-2, DType::f32)).scale, 1);
}

}  // namespace
}  // namespace tessera::test::gpu_attention_test
