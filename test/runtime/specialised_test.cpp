// Models whose sizes decide a branch or a rank are compiled again for the sizes of a run, and give what the evaluator
// gives.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/evaluate/evaluate.h"
#include "graph/text/parse.h"
#include "tessera/compile.h"

namespace tessera::specialised_test {
namespace {

Datum waves(Sizes sizes) {
    Tensor t = *Tensor::zeros(DType::f32, std::move(sizes));
    for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, std::sin(double(i) * 1.3));
    return Datum(std::move(t));
}

struct Compiled {
    std::unique_ptr<Graph> graph;
    std::optional<Executable> executable;

    explicit Compiled(std::string_view text, bool specialise = true) {
        auto parsed = parse(text);
        EXPECT_TRUE(parsed.ok()) << parsed.error().to_string();
        graph = std::move(*parsed);
        auto made = compile(Model(graph->clone()), {.threads = 1, .specialise = specialise, .cache = ""});
        EXPECT_TRUE(made.ok()) << made.error().to_string();
        executable = std::move(*made);
    }

    void expect_as_evaluated(const NamedData& inputs) const {
        auto want = evaluate(*graph, inputs);
        auto got = executable->run(inputs);
        ASSERT_TRUE(want.ok()) << want.error().to_string();
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        ASSERT_EQ(got->size(), want->size());
        for (size_t i = 0; i < want->size(); ++i) {
            const Tensor &a = (*got)[i].tensor(), &b = (*want)[i].tensor();
            ASSERT_EQ(a.sizes(), b.sizes());
            for (int64_t k = 0; k < b.elements(); ++k) EXPECT_NEAR(a.real_at(k), b.real_at(k), 1e-5);
        }
    }

    size_t host_steps(const NamedData& inputs) const {
        auto steps = executable->profile(inputs, 1);
        EXPECT_TRUE(steps.ok()) << steps.error().to_string();
        size_t count = 0;
        for (const StepProfile& s : *steps) count += s.kind == "host";
        return count;
    }
};

// What torch writes for squeeze(0) of a batch that may be one.
constexpr std::string_view kSqueezes =
    "graph g(x: f32[N,T], w: f32[T,3]) { %s = shape(x, start=0, end=1) %one = squeeze(%s) %c = equal(%one, 1) "
    "%y = if(%c, then_branch=graph t() { %a = squeeze(x, [0]) return %a }, else_branch=graph e() { %b = identity(x) "
    "return %b }) %e = exp(%y) %z = matmul(%e, w) return %z }";

TEST(Specialised, RanksThatSizesDecide) {
    Compiled model(kSqueezes);
    EXPECT_EQ(model.executable->report().deciding, std::vector<std::string>{"N"});
    for (int64_t n : {1, 2, 1, 5})
        for (int64_t t : {4, 7, 2}) {
            SCOPED_TRACE(fmt::format("{} x {}", n, t));
            const NamedData inputs{{"x", waves({n, t})}, {"w", waves({t, 3})}};
            model.expect_as_evaluated(inputs);
            EXPECT_EQ(model.host_steps(inputs), 0u);
        }
}

TEST(Specialised, OnlyWhereItIsAskedFor) {
    Compiled model(kSqueezes, false);
    const NamedData inputs{{"x", waves({1, 4})}, {"w", waves({4, 3})}};
    model.expect_as_evaluated(inputs);
    EXPECT_GT(model.host_steps(inputs), 0u);
}

TEST(Specialised, NotByWhatInputsHold) {
    Compiled model(
        "graph g(x: f32[N,4]) { %m = reduce_max(x, keepdims=0) %c = greater(%m, 0.5) %y = if(%c, then_branch=graph t() "
        "{ "
        "%a = exp(x) return %a }, else_branch=graph e() { %b = neg(x) return %b }) return %y }");
    EXPECT_TRUE(model.executable->report().deciding.empty());
    for (int64_t n : {1, 3}) model.expect_as_evaluated({{"x", waves({n, 4})}});
}

// The first decision shows the second.
TEST(Specialised, DecisionsThatFollowFromOthers) {
    Compiled model(
        "graph g(x: f32[N,M,4]) { %s = shape(x, start=0, end=1) %n = squeeze(%s) %c = equal(%n, 1) "
        "%y = if(%c, then_branch=graph t() { %a = squeeze(x, [0]) return %a }, else_branch=graph e() { %b = "
        "identity(x) "
        "return %b }) %t = shape(%y, start=0, end=1) %m = squeeze(%t) %d = equal(%m, 3) %z = if(%d, "
        "then_branch=graph u() { %p = reduce_sum(%y, [0], keepdims=0) return %p }, else_branch=graph v() { %q = "
        "neg(%y) return %q }) %r = tanh(%z) return %r }");
    for (Sizes sizes : {Sizes{1, 3, 4}, {1, 2, 4}, {3, 2, 4}, {2, 2, 4}, {1, 3, 4}}) {
        const NamedData inputs{{"x", waves(sizes)}};
        model.expect_as_evaluated(inputs);
        EXPECT_EQ(model.host_steps(inputs), 0u) << to_string(sizes);
    }
}

TEST(Specialised, MoreSizesThanAreKept) {
    Compiled model(kSqueezes);
    for (int64_t n = 1; n < 40; ++n) model.expect_as_evaluated({{"x", waves({n, 4})}, {"w", waves({4, 3})}});
}

}  // namespace
}  // namespace tessera::specialised_test
