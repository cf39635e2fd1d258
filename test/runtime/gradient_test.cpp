// Compiled gradients against the evaluator's. TESSERA_RANDOM_GRADIENTS=2000 checks that many random graphs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "graph/builder.h"
#include "graph/gradient/gradient.h"
#include "graph/text/parse.h"
#include "graph/text/print.h"
#include "ops/random_graph_text.h"
#include "tessera/compile.h"

namespace tessera::gradient_test {
namespace {

// The text of a graph with the gradients of its first output as outputs.
std::string with_gradients(const std::string& text) {
    auto graph = parse(text);
    if (!graph.ok()) return ADD_FAILURE() << graph.error().to_string() << text, "";
    Builder b(**graph);
    std::vector<Value*> wanted;
    for (const auto& in : (*graph)->inputs())
        if (is_float(in->type().tensor().dtype)) wanted.push_back(in.get());
    auto made = gradients(b, {{(*graph)->outputs()[0]}}, wanted);
    if (!made.ok()) return ADD_FAILURE() << made.error().to_string() << text, "";
    for (Value* g : *made)
        if (g) (*graph)->add_output(g);
    (*graph)->erase_unused();
    return print(**graph);
}

void expect_as_evaluated(const std::string& text, uint64_t seed) {
    const std::string whole = with_gradients(text);
    auto model = Model::parse(whole);
    ASSERT_TRUE(model.ok()) << model.error().to_string() << "\n" << whole;
    auto executable = compile(*model, {.cache = ""});
    ASSERT_TRUE(executable.ok()) << executable.error().to_string() << "\n" << whole;
    NamedData inputs;
    uint64_t next = 0;
    RandomStream random(seed, "inputs");
    auto graph = parse(text);
    for (const auto& in : (*graph)->inputs()) {
        Tensor t = *Tensor::zeros(in->type().tensor().dtype, *in->type().tensor().shape.sizes());
        for (int64_t k = 0; k < t.elements(); ++k) t.set_real(k, 2 * random.uniform(next++) - 1);
        inputs.emplace(in->name(), t);
    }
    auto want = model->run(inputs), got = executable->run(inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string() << "\n" << whole;
    ASSERT_TRUE(got.ok()) << got.error().to_string() << "\n" << whole;
    for (size_t i = 0; i < want->size(); ++i) {
        const Tensor &w = (*want)[i].tensor(), &g = (*got)[i].tensor();
        ASSERT_EQ(g.sizes(), w.sizes());
        double largest = 1e-3;
        for (int64_t k = 0; k < w.elements(); ++k) largest = std::max(largest, std::fabs(w.real_at(k)));
        for (int64_t k = 0; k < w.elements(); ++k)
            ASSERT_NEAR(g.real_at(k), w.real_at(k), 2e-4 * largest) << "output " << i << "\n" << whole;
    }
}

TEST(CompiledGradient, OfConvolutionsAndPools) {
    for (const char* text :
         {"graph g(x: f32[2,3,9,8], w: f32[8,3,3,3], b: f32[8]) { return conv(x, w, b, strides=[2,2], pads=[1,1,1,1]) "
          "}",
          "graph g(x: f32[1,16,7,7], w: f32[32,16,1,1]) { return conv(x, w) }",
          "graph g(x: f32[2,4,6,6], w: f32[8,2,3,3]) { return conv(x, w, group=2, pads=[1,1,1,1]) }",
          "graph g(x: f32[2,8,8,8], w: f32[8,1,3,3]) { return conv(x, w, group=8, dilations=[2,2]) }",
          "graph g(x: f32[2,4,9,9]) { return max_pool(x, kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]) }",
          "graph g(x: f32[2,4,8,8]) { return average_pool(x, kernel_shape=[2,2], strides=[2,2]) }"})
        expect_as_evaluated(text, 1);
}

TEST(CompiledGradient, OfTransformersAndRecurrences) {
    for (const char* text :
         {"graph g(q: f32[1,2,5,8], k: f32[1,2,5,8], v: f32[1,2,5,8]) { return attention(q, k, v, is_causal=1) }",
          "graph g(x: f32[3,4,20], s: f32[20], b: f32[20]) { return layer_normalization(x, s, b) }",
          "graph g(x: f32[6,11]) { const l: i64[6] = [1,0,3,10,2,2] return softmax_cross_entropy_loss(x, l) }",
          "graph g(e: f32[7,5]) { const i: i64[2,3] = [[1,0,1],[6,6,2]] return gather(e, i) }",
          "graph g(x: f32[4,2,3], w: f32[1,16,3], r: f32[1,16,4]) { %y, %h, %c = lstm(x, w, r, hidden_size=4) return "
          "%y }"})
        expect_as_evaluated(text, 2);
}

TEST(CompiledGradient, OfRandomGraphs) {
    const char* given = std::getenv("TESSERA_RANDOM_GRADIENTS");
    const uint64_t count = given ? std::strtoull(given, nullptr, 10) : 8;
    for (uint64_t seed = 1; seed <= count && !HasFailure(); ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        expect_as_evaluated(test::RandomGraphText(seed, "f32").make(int(4 + seed % 27)), seed);
    }
}

}  // namespace
}  // namespace tessera::gradient_test
