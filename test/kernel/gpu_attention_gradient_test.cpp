// Gradients of attention as tile programs: the interpreted kernels against the evaluator.
#include <gmock/gmock.h>

#include <cstring>

#include "kernel/lower_text.h"
#include "llvm/compile_kernels.h"

namespace tessera::test::gpu_attention_gradient_test {
namespace {

struct Case {
    std::string types;  // of q, k, v
    std::string y;      // of the result
    std::string options;
    std::string mask = "";
};

std::string text_of(const Case& c) {
    const std::string mask = c.mask.empty() ? "_" : "m", input = c.mask.empty() ? "" : ", m: " + c.mask;
    const std::string options = c.options.empty() ? "" : ", " + c.options;
    return fmt::format(
        "graph g({}, g: {}{}) {{\n  %y = attention(q, k, v, {}{})\n"
        "  %a, %b, %c = attention_gradient(q, k, v, {}, _, _, _, %y, g{})\n  return %a, %b, %c\n}}\n",
        c.types, c.y, input, mask, options, mask, options);
}

// The same in f32: what the gradient would be if nothing were rounded to 16 bits on the way.
std::string in_f32(std::string text) {
    for (const char* half : {"bf16[", "f16["})
        for (size_t at = 0; (at = text.find(half, at)) != std::string::npos;) text.replace(at, strlen(half), "f32[");
    return text;
}
Inputs in_f32(const Inputs& inputs) {
    Inputs wide;
    for (const auto& [name, datum] : inputs) {
        const Tensor& t = datum.tensor();
        if (t.dtype() == DType::boolean) {
            wide.emplace(name, t);
            continue;
        }
        Tensor made = *Tensor::zeros(DType::f32, t.sizes());
        for (int64_t i = 0; i < t.elements(); ++i) made.set_real(i, t.real_at(i));
        wide.emplace(name, made);
    }
    return wide;
}

void expect_gradients(const Case& c, const SymbolValues& symbols = {}, const char* target = "sm_90a") {
    const std::string text = text_of(c);
    SCOPED_TRACE(text);
    auto graph = graph_of(text);
    const Inputs inputs = random_inputs(*graph, symbols, 11);
    auto want = evaluate(*graph_of(in_f32(text)), in_f32(inputs));
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    LowerOptions options;
    options.machine = *describe_target(target);
    auto program = from_graph(graph, options);
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    int tiled = 0;
    for (const Kernel& k : program->kernels) tiled += k.name.find("attention_gradient_by") != std::string::npos;
    EXPECT_EQ(tiled, 2) << target;
    auto got = run_program(*program, inputs, {.races = InterpretOptions::Races::Find});
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    for (size_t i = 0; i < want->size(); ++i) {
        const Tensor &a = (*got)[i].tensor(), &b = (*want)[i].tensor();
        ASSERT_EQ(a.sizes(), b.sizes());
        double apart = 0, norm = 0;
        for (int64_t e = 0; e < b.elements(); ++e) {
            const double d = a.real_at(e) - b.real_at(e);
            apart += d * d;
            norm += b.real_at(e) * b.real_at(e);
        }
        EXPECT_LE(std::sqrt(apart), 0.02 * std::sqrt(norm) + 2e-3 * std::sqrt(double(b.elements())))
            << "output " << i << " for " << target;
    }
}

TEST(GpuAttentionGradient, AgreesWithTheEvaluator) {
    auto plain = [](const std::string& t, int64_t rows, int64_t d, const char* options) {
        const std::string type = fmt::format("{}[1,2,{},{}]", t, rows, d);
        return Case{fmt::format("q: {0}, k: {0}, v: {0}", type), type, options};
    };
    expect_gradients(plain("bf16", 70, 32, ""));
    expect_gradients(plain("f16", 40, 24, "is_causal=1"));  // tiles are wider than heads
    expect_gradients(plain("f16", 40, 24, "is_causal=1, scale=0.5"), {}, "sm_80");
    expect_gradients(plain("bf16", 33, 96, ""));
}

TEST(GpuAttentionGradient, QueriesAndKeysMayDiffer) {
    const std::string types = "q: f16[1,1,{0},16], k: f16[1,1,{1},16], v: f16[1,1,{1},40]";
    for (auto [queries, keys, options] : {std::tuple(5, 150, "is_causal=1"), std::tuple(150, 5, "is_causal=1"),
                                          std::tuple(64, 128, ""), std::tuple(1, 1, "")})
        expect_gradients(
            {fmt::format(fmt::runtime(types), queries, keys), fmt::format("f16[1,1,{},40]", queries), options});
}

TEST(GpuAttentionGradient, HeadsMayShareKeysAndBePacked) {
    expect_gradients({"q: f16[1,6,33,16], k: f16[1,2,33,16], v: f16[1,2,33,16]", "f16[1,6,33,16]", "is_causal=1"});
    expect_gradients(
        {"q: f16[2,33,48], k: f16[2,33,48], v: f16[2,33,48]", "f16[2,33,48]", "q_num_heads=3, kv_num_heads=3"});
    expect_gradients(
        {"q: f16[1,33,64], k: f16[1,40,32], v: f16[1,40,32]", "f16[1,33,64]", "q_num_heads=4, kv_num_heads=2"});
}

TEST(GpuAttentionGradient, MasksOfEveryForm) {
    const std::string types = "q: f16[2,1,20,16], k: f16[2,1,40,16], v: f16[2,1,40,16]", y = "f16[2,1,20,16]";
    for (const char* mask : {"f16[20,40]", "f32[2,1,1,40]", "bool[2,1,1,40]"}) expect_gradients({types, y, "", mask});
    expect_gradients({types, y, "is_causal=1", "bool[20,40]"});
}

TEST(GpuAttentionGradient, SizesMayBeDynamic) {
    const Case c{"q: f16[B,1,N,16], k: f16[B,1,M,16], v: f16[B,1,M,16]", "f16[B,1,N,16]", "is_causal=1"};
    for (int64_t n : {1, 70}) expect_gradients(c, {{"B", 1}, {"N", n}, {"M", 71 - n}});
}

}  // namespace
}  // namespace tessera::test::gpu_attention_gradient_test
