// Graphs nested in host steps run as programs of their own, and give what the evaluator gives.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/evaluate/evaluate.h"
#include "graph/text/parse.h"
#include "tessera/compile.h"

namespace tessera {
namespace {

Tensor numbers(Sizes sizes) {
    Tensor t = *Tensor::zeros(DType::f32, sizes);
    for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, std::sin(double(i) * 1.7));
    return t;
}

void expect_as_evaluated(std::string_view text, const Inputs& inputs, size_t least_kernels) {
    SCOPED_TRACE(text);
    auto graph = parse(text);
    ASSERT_TRUE(graph.ok()) << graph.error().to_string();
    auto want = evaluate(**graph, inputs);
    auto executable = compile(Model((*graph)->clone()), {.threads = 2, .cache = ""});
    ASSERT_TRUE(executable.ok()) << executable.error().to_string();
    EXPECT_GE(executable->report().kernels, least_kernels);
    for (int again = 0; again < 2; ++again) {
        auto got = executable->run(inputs);
        ASSERT_EQ(got.ok(), want.ok()) << (got.ok() ? want : got).error().to_string();
        if (!want.ok()) {
            EXPECT_EQ(got.error().code(), want.error().code());
            continue;
        }
        ASSERT_EQ(got->size(), want->size());
        for (size_t i = 0; i < want->size(); ++i) {
            const Tensor &a = (*got)[i].tensor(), &b = (*want)[i].tensor();
            ASSERT_EQ(a.sizes(), b.sizes());
            for (int64_t k = 0; k < b.elements(); ++k) EXPECT_NEAR(a.real_at(k), b.real_at(k), 1e-5);
        }
    }
}

TEST(Nested, Branches) {
    std::string_view text =
        "graph g(c: bool[], x: f32[N,4], w: f32[4,4]) { %y = exp(x) %a = if(c, then_branch=graph t() { %p = matmul(%y, "
        "w) return "
        "%p }, "
        "else_branch=graph e() { %q = sub(%y, x) return %q }) %b = relu(%a) return %b }";
    for (bool c : {false, true})
        for (int64_t n : {0, 1, 5})
            expect_as_evaluated(
                text, {{"c", Datum(Tensor::scalar(c))}, {"x", Datum(numbers({n, 4}))}, {"w", Datum(numbers({4, 4}))}},
                3);
}

TEST(Nested, Loops) {
    std::string_view text =
        "graph g(m: i64[], x: f32[3,4], w: f32[4,4]) { %y, %all = loop(m, _, x, body=graph b(i: i64[], go: bool[], s: "
        "f32[3,4]) { %p "
        "= matmul(s, w) %q = tanh(%p) return go, %q, %p }) return %y, %all }";
    for (int64_t m : {1, 2, 7})
        expect_as_evaluated(
            text, {{"m", Datum(Tensor::scalar(m))}, {"x", Datum(numbers({3, 4}))}, {"w", Datum(numbers({4, 4}))}}, 1);
}

// A body that says less of a size than is true in the end: the state grows.
TEST(Nested, StatesThatGrow) {
    std::string_view text =
        "graph g(m: i64[], x: f32[1,4]) { %y = loop(m, _, x, body=graph b(i: i64[], go: bool[], s: f32[K,4]) { %e = "
        "exp(x) %q "
        "= "
        "concat(s, %e, axis=0) return go, %q }) return %y }";
    for (int64_t m : {0, 1, 6})
        expect_as_evaluated(text, {{"m", Datum(Tensor::scalar(m))}, {"x", Datum(numbers({1, 4}))}}, 1);
}

TEST(Nested, LoopsInLoops) {
    std::string_view text =
        "graph g(m: i64[], x: f32[3]) { %y = loop(m, _, x, body=graph b(i: i64[], go: bool[], s: f32[3]) { %t = "
        "loop(m, _, s, "
        "body=graph b(j: "
        "i64[], on: bool[], r: f32[3]) { %a = mul(r, x) %b = sin(%a) return on, %b }) %u = add(%t, x) return go, %u }) "
        "return %y }";
    for (int64_t m : {1, 3})
        expect_as_evaluated(text, {{"m", Datum(Tensor::scalar(m))}, {"x", Datum(numbers({3}))}}, 2);
}

TEST(Nested, RecurrentLayersOfAnyLength) {
    std::string_view text =
        "graph g(x: f32[S,2,3], w: f32[1,20,3], r: f32[1,20,5]) { %y, %h, %c = lstm(x, w, r, hidden_size=5) return %y, "
        "%h, %c }";
    for (int64_t s : {1, 2, 9})
        expect_as_evaluated(
            text,
            {{"x", Datum(numbers({s, 2, 3}))}, {"w", Datum(numbers({1, 20, 3}))}, {"r", Datum(numbers({1, 20, 5}))}},
            2);
}

TEST(Nested, FailsAsTheEvaluatorDoes) {
    std::string_view text =
        "graph g(m: i64[], x: f32[3], k: i64[1]) { %y = loop(m, _, x, body=graph b(i: i64[], go: bool[], s: f32[3]) { "
        "%a = "
        "gather(s, k) "
        "%b = add(s, %a) return go, %b }) return %y }";
    for (int64_t k : {2, 3})
        expect_as_evaluated(text,
                            {{"m", Datum(Tensor::scalar(int64_t{2}))},
                             {"x", Datum(numbers({3}))},
                             {"k", Datum(Tensor::of<int64_t>({1}, std::vector<int64_t>{k}))}},
                            1);
}

}  // namespace
}  // namespace tessera
