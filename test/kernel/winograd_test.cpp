// Convolutions in tiles: the matrices are exact, the rewritten graph computes what the convolution did.
#include <gtest/gtest.h>

#include <limits>

#include "graph/evaluate/evaluate.h"
#include "graph/text/parse.h"
#include "graph/text/print.h"
#include "rewrite/passes/lowering_passes.h"
#include "rewrite/passes/winograd_matrices.h"

namespace tessera::test::winograd_test {
namespace {

std::vector<Choice> choices_of(Graph& graph, const Machine& machine = {}) {
    PassContext context;
    auto changed = choose_winograd(graph, machine, context);
    EXPECT_TRUE(changed.ok());
    bool any = false;
    for (const Choice& c : context.choices) any |= bool(c.decision);
    EXPECT_EQ(changed.ok() && *changed, any);
    return context.choices;
}

TEST(winograd, matrices_interpolate_exactly) {
    WinogradMatrices m = winograd_matrices(4, 3, {0, 0.625, -0.625, 1.25, -1.25});
    double d[6] = {3, -1, 4, 1, -5, 9}, g[3] = {2, -6, 5};
    for (int64_t i = 0; i < 4; ++i) {
        double y = 0;
        for (int64_t j = 0; j < 6; ++j) {
            double u = 0, v = 0;
            for (int64_t k = 0; k < 3; ++k) u += m.g.real_at(j * 3 + k) * g[k];
            for (int64_t k = 0; k < 6; ++k) v += m.bt.real_at(j * 6 + k) * d[k];
            y += m.at.real_at(i * 6 + j) * u * v;
        }
        EXPECT_NEAR(y, d[i] * g[0] + d[i + 1] * g[1] + d[i + 2] * g[2], 1e-12);
    }
}

TEST(winograd, weights_are_those_of_the_op) {
    const std::vector<double> points = {0, 0.625, -0.625, 1.25, -1.25};
    const WinogradMatrices rows = winograd_matrices(4, 3, points), columns = winograd_matrices(5, 2, points);
    std::vector<float> taps;
    for (int i = 0; i < 7 * 5 * 3 * 2; ++i) taps.push_back(float(i * i % 23) / 23 - 0.5f);
    const Tensor w = Tensor::of<float>({7, 5, 3, 2}, taps);
    auto wide = evaluate_op(*find_op("cast"), {Datum(w)}, {{"to", Attr(int64_t(11))}});
    ASSERT_TRUE(wide.ok());
    auto wanted = evaluate_op(*find_op("winograd_weight"), {wide->front(), Datum(rows.g), Datum(columns.g)}, {});
    auto made = winograd_weights(w, rows.g, columns.g);
    ASSERT_TRUE(wanted.ok() && made.ok());
    ASSERT_EQ(made->sizes(), wanted->front().tensor().sizes());
    EXPECT_EQ(made->sizes(), (Sizes{6, 6, 5, 7}));
    for (int64_t i = 0; i < made->elements(); ++i)
        EXPECT_FLOAT_EQ(float(made->real_at(i)), float(wanted->front().tensor().real_at(i)));
}

struct Case {
    int64_t n, c, o, h, w;
    std::vector<int64_t> pads;
    std::vector<int64_t> kernel = {3, 3}, tiles = {};
    double tolerance = 2e-5;
};

void check(const Case& k) {
    SCOPED_TRACE(fmt::format("n={} c={} o={} {}x{} pads {} kernel {}x{} tiles {}", k.n, k.c, k.o, k.h, k.w, k.pads[0],
                             k.kernel[0], k.kernel[1], k.tiles.empty() ? 0 : k.tiles[0]));
    auto random = [seed = 1u](Sizes sizes) mutable {
        auto t = Tensor::zeros(DType::f32, std::move(sizes));
        for (int64_t i = 0; i < t->elements(); ++i) {
            seed = seed * 1664525u + 1013904223u;
            t->set_real(i, double(int32_t(seed)) / 2147483648.0);
        }
        return std::move(*t);
    };
    Tensor weight = random({k.o, k.c, k.kernel[0], k.kernel[1]}), bias = random({k.o});
    auto build = [&](Graph& g) {
        Value* x = g.add_input("x", Type(DType::f32, Shape{k.n, k.c, k.h, k.w}));
        NodeSpec spec{find_op("conv"), {x, g.constant(weight), g.constant(bias)}, {{"pads", Attr(k.pads)}}};
        if (!k.tiles.empty()) spec.attrs["tiles"] = Attr(k.tiles);
        auto node = g.add(std::move(spec));
        ASSERT_TRUE(node.ok()) << node.error().to_string();
        // A result that leaves is written in ONNX's order, which tiles cost more for.
        auto after = g.add({find_op("neg"), {(*node)->output()}});
        ASSERT_TRUE(after.ok());
        g.add_output((*after)->output(), "y");
    };
    Graph plain("plain"), tiles("tiles");
    build(plain);
    build(tiles);
    auto choices = choices_of(tiles);
    ASSERT_EQ(choices.size(), 1u);
    ASSERT_TRUE(choices[0].decision) << choices[0].decision.reason();
    Inputs inputs{{"x", Datum(random({k.n, k.c, k.h, k.w}))}};
    auto want = evaluate(plain, inputs), have = evaluate(tiles, inputs);
    ASSERT_TRUE(want.ok() && have.ok()) << (have.ok() ? "" : have.error().to_string());
    const Tensor &a = want->front().tensor(), &b = have->front().tensor();
    ASSERT_EQ(a.sizes(), b.sizes());
    for (int64_t i = 0; i < a.elements(); ++i) ASSERT_NEAR(a.real_at(i), b.real_at(i), k.tolerance) << i;
}

TEST(winograd, tiles_compute_the_convolution) {
    check({1, 64, 64, 16, 16, {1, 1, 1, 1}});
    check({2, 64, 48, 13, 14, {1, 1, 1, 1}});
    check({3, 72, 65, 15, 11, {0, 2, 1, 0}});
}

TEST(winograd, tiles_that_are_asked_for) {
    for (int64_t side = 2; side <= 8; ++side)
        check({2, 5, 7, 13, 11, {1, 1, 1, 1}, {3, 3}, {side, side}, side < 7 ? 4e-5 : 2e-4});
    for (int64_t side = 2; side <= 4; ++side) {
        check({1, 9, 6, 17, 5, {3, 0, 3, 0}, {7, 1}, {side, 1}});
        check({2, 9, 6, 3, 17, {0, 3, 0, 2}, {1, 7}, {1, side}});
        check({2, 3, 4, 9, 10, {2, 2, 2, 2}, {5, 5}, {side, side + 1}, 4e-5});
    }
    check({1, 2, 3, 1, 1, {1, 1, 1, 1}, {3, 3}, {7, 2}, 2e-4});
}

TEST(winograd, what_is_asked_for_and_cannot_be_stays_direct) {
    auto choices_for = [](std::vector<int64_t> tiles, std::map<std::string, Attr> attrs) {
        Graph g("g");
        Value* x = g.add_input("x", Type(DType::f32, Shape{1, 64, 32, 32}));
        attrs["tiles"] = Attr(std::move(tiles));
        auto node = g.add({find_op("conv"), {x, g.constant(*Tensor::zeros(DType::f32, {64, 64, 3, 3}))}, attrs});
        EXPECT_TRUE(node.ok());
        g.add_output((*node)->output(), "y");
        return choices_of(g).size();
    };
    EXPECT_EQ(choices_for({6, 6}, {}), 1u);
    EXPECT_EQ(choices_for({1, 1}, {}), 0u);  // directly
    EXPECT_EQ(choices_for({9, 9}, {}), 0u);  // too many points
    EXPECT_EQ(choices_for({-4, 4}, {}), 0u);
    EXPECT_EQ(choices_for({std::numeric_limits<int64_t>::max(), 4}, {}), 0u);
    EXPECT_EQ(choices_for({6, 6}, {{"strides", Attr(std::vector<int64_t>{2, 2})}}), 0u);
}

TEST(winograd, small_products_stay_direct) {
    Graph g("g");
    Value* x = g.add_input("x", Type(DType::f32, Shape{1, 3, 32, 32}));
    auto node = g.add({find_op("conv"), {x, g.constant(*Tensor::zeros(DType::f32, {16, 3, 3, 3}))}});
    ASSERT_TRUE(node.ok());
    g.add_output((*node)->output(), "y");
    auto choices = choices_of(g);
    ASSERT_EQ(choices.size(), 1u);
    EXPECT_FALSE(choices[0].decision);
    EXPECT_EQ(g.nodes().size(), 1u);
}

// Few tiles read all of the weights, which are four times as many: the faster the arithmetic, the worse that is.
TEST(winograd, strict_precision_takes_tiles_only_where_asked) {
    for (bool asked : {false, true})
        for (Precision precision : {Precision::Strict, Precision::Default}) {
            Graph g("g");
            Value* x = g.add_input("x", Type(DType::f32, Shape{1, 64, 32, 32}));
            NodeSpec spec{find_op("conv"), {x, g.constant(*Tensor::zeros(DType::f32, {64, 64, 3, 3}))}};
            if (asked) spec.attrs["tiles"] = Attr(std::vector<int64_t>{4, 4});
            auto node = g.add(std::move(spec));
            ASSERT_TRUE(node.ok());
            auto after = g.add({find_op("neg"), {(*node)->output()}});
            ASSERT_TRUE(after.ok());
            g.add_output((*after)->output(), "y");
            PassContext context;
            context.precision = precision;
            auto changed = choose_winograd(g, {}, context);
            ASSERT_TRUE(changed.ok());
            EXPECT_EQ(*changed, asked || precision == Precision::Default);
        }
}

TEST(winograd, few_tiles_are_direct_where_arithmetic_is_fast) {
    for (int bytes : {16, 64}) {
        Graph g("g");
        Value* x = g.add_input("x", Type(DType::f32, Shape{1, 448, 8, 8}));
        Value* w = g.constant(*Tensor::zeros(DType::f32, {384, 448, 3, 3}));
        auto node = g.add({find_op("conv"), {x, w}, {{"pads", Attr(std::vector<int64_t>{1, 1, 1, 1})}}});
        ASSERT_TRUE(node.ok());
        g.add_output((*node)->output(), "y");
        Machine machine;
        machine.vector_bytes = bytes;
        EXPECT_EQ(bool(choices_of(g, machine).at(0).decision), bytes == 16);
    }
}

}  // namespace
}  // namespace tessera::test::winograd_test
