// Strassen products, compiled: how far they are from the sum in f64. The table in docs/lowering.md is what this
// prints.
#include <gtest/gtest.h>

#include "base/random.h"
#include "graph/graph.h"
#include "runtime/compiled_error.h"

namespace tessera::halvings_test {
namespace {

Tensor uniform(const char* name, Sizes sizes) {
    auto t = Tensor::zeros(DType::f32, std::move(sizes));
    RandomStream random(0, name);
    for (int64_t i = 0; i < t->elements(); ++i)
        t->set_real(i, double(random.bits(uint64_t(i)) >> 11) / double(uint64_t{1} << 52) - 1);
    return std::move(*t);
}

// Relative to the root mean square of the result. `op` takes x and weights, and may be followed by `after`.
double error_of(const char* op, const Sizes& x_sizes, const Sizes& w_sizes, int64_t halvings, const char* after = "") {
    auto graph = std::make_shared<Graph>("g");
    Shape shape;
    for (int64_t n : x_sizes) shape.push_back(n);
    Value* x = graph->add_input("x", Type(DType::f32, shape));
    Value* w = graph->constant(uniform("w", w_sizes));
    AttrMap attrs;
    if (halvings > 0) attrs["halvings"] = Attr(halvings);
    auto node = graph->add({find_op(op), {x, w}, attrs});
    EXPECT_TRUE(node.ok()) << node.error().to_string();
    if (*after) node = graph->add({find_op(after), {(*node)->output()}, {}});
    // Inside a model its channels lie innermost.
    if (op == std::string("conv")) node = graph->add({find_op("global_average_pool"), {(*node)->output()}, {}});
    graph->add_output((*node)->output(), "y");
    Model model(graph);
    auto executable = compile(model, {.threads = 1, .cache = ""});
    EXPECT_TRUE(executable.ok()) << executable.error().to_string();
    size_t halved = 0;
    for (const auto& [subject, decision] : executable->report().decisions)
        halved += subject.starts_with("Strassen for ") && decision.starts_with("yes");
    EXPECT_EQ(halved, halvings > 0 ? 1u : 0u);
    NamedData inputs{{"x", Datum(uniform("x", x_sizes))}};
    return compiled_error(model, *executable, inputs);
}

TEST(Halvings, ErrorsGrowWithEach) {
    const double most[] = {4e-7, 6e-7, 1.2e-6};
    for (int64_t halvings : {0, 1, 2}) {
        const double error = error_of("matmul", {61, 768}, {768, 70}, halvings);
        fmt::print("{} halvings: {:.1e}\n", halvings, error);
        EXPECT_LT(error, most[halvings]);
    }
}

TEST(Halvings, WhateverFollows) {
    for (int64_t halvings : {1, 2})
        for (const char* after : {"relu", "gelu", "tanh"}) {
            SCOPED_TRACE(after);
            EXPECT_LT(error_of("matmul", {2, 40, 128}, {128, 56}, halvings, after), 1.2e-6);
        }
}

TEST(Halvings, OfConvolutionsAndGemms) {
    for (int64_t halvings : {1, 2}) {
        EXPECT_LT(error_of("conv", {2, 64, 7, 7}, {72, 64, 1, 1}, halvings, "relu"), 4e-6);
        EXPECT_LT(error_of("gemm", {49, 64}, {64, 72}, halvings), 1.2e-6);
    }
}

}  // namespace
}  // namespace tessera::halvings_test
