// What a search gives computes what came in: small models of the kinds that people search, at odd and non-square sizes,
// with both strategies, every candidate.
#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/verify.h"
#include "search/compare_graphs.h"
#include "search/search.h"
#include "search/search_rules.h"

namespace tessera::searched_models_test {
namespace {

using MakeGraph = std::unique_ptr<Graph> (*)(Dice&);

Attr list(std::vector<int64_t> values) { return Attr(std::move(values)); }

// A few steps of a recurrent cell: gates that share their input and their state, all steps the same weights.
std::unique_ptr<Graph> recurrent(Dice& dice) {
    auto graph = std::make_unique<Graph>("recurrent");
    Builder b(*graph);
    const int64_t batch = 1 + dice.below(3), in = dice.one_of<int64_t>({1, 4, 5}),
                  width = dice.one_of<int64_t>({3, 5, 7});
    const int64_t steps = 2 + dice.below(3), gates = 2 + dice.below(3);
    std::vector<Value*> w, u, bias;
    for (int64_t g = 0; g < gates; ++g) {
        w.push_back(b.constant(dice.tensor({in, width})));
        u.push_back(b.constant(dice.tensor({width, width})));
        bias.push_back(b.constant(dice.tensor({width})));
    }
    Value* h = graph->add_input("h", TensorType{DType::f32, Shape{batch, width}});
    for (int64_t t = 0; t < steps; ++t) {
        Value* x = graph->add_input(fmt::format("x{}", t), TensorType{DType::f32, Shape{batch, in}});
        std::vector<Value*> gate;
        for (int64_t g = 0; g < gates; ++g) {
            Value* sum = b.add(b.add(b.matmul(x, w[size_t(g)]), b.matmul(h, u[size_t(g)])), bias[size_t(g)]);
            gate.push_back(b.op(dice.one_of({"tanh", "sigmoid", "relu"}), {sum}));
        }
        h = gate[0];
        for (size_t g = 1; g < gate.size(); ++g) h = dice.chance(50) ? b.mul(h, gate[g]) : b.add(h, gate[g]);
    }
    EXPECT_TRUE(b.status().ok()) << b.status().error().to_string();
    graph->add_output(h, "last");
    return graph;
}

// Branches over one image: kernels, strides, pads, dilations and groups that are not alike in both directions.
std::unique_ptr<Graph> branches(Dice& dice) {
    auto graph = std::make_unique<Graph>("branches");
    Builder b(*graph);
    const int64_t channels = dice.one_of<int64_t>({2, 3, 4, 6});
    const Shape shape{1 + dice.below(2), channels, 5 + dice.below(4), 4 + dice.below(6)};
    Value* x = graph->add_input("x", TensorType{DType::f32, shape});
    Value* y = graph->add_input("y", TensorType{DType::f32, shape});
    const int64_t stride_h = 1 + dice.below(2), stride_w = 1 + dice.below(2);
    std::vector<Value*> made;
    for (int i = 0; i < 4; ++i) {
        const int64_t kh = dice.one_of<int64_t>({1, 3}), kw = dice.one_of<int64_t>({1, 3, 5}),
                      dilation = 1 + dice.below(2);
        const int64_t group = channels % 2 == 0 && dice.chance(30) ? 2 : 1, out = 2 * (1 + dice.below(2));
        const int64_t ph = kh / 2 * dilation, pw = kw / 2;
        AttrMap attrs{{"pads", list({ph, pw, ph, pw})},
                      {"strides", list({stride_h, stride_w})},
                      {"dilations", list({dilation, 1})},
                      {"group", Attr(group)}};
        Value* from = dice.chance(75) ? x : y;
        std::vector<Value*> inputs = {from, b.constant(dice.tensor({out, channels / group, kh, kw}))};
        if (dice.chance(50)) inputs.push_back(b.constant(dice.tensor({out})));
        Value* v = b.op("conv", inputs, attrs);
        made.push_back(dice.chance(40) ? b.op("relu", {v}) : v);
    }
    AttrMap pool{{"kernel_shape", list({3, 1})}, {"pads", list({1, 0, 1, 0})}, {"strides", list({stride_h, stride_w})}};
    made.push_back(b.op(dice.one_of({"max_pool", "average_pool"}), {x}, pool));
    Value* joined = b.concat(made, 1);
    EXPECT_TRUE(b.status().ok()) << b.status().error().to_string();
    const Dim total = joined->type().tensor().shape[1];
    const std::vector<Value*> ends = {b.op("conv", {joined, b.constant(dice.tensor({3, *total.as_int(), 1, 1}))}),
                                      b.op("conv", {joined, b.constant(dice.tensor({5, *total.as_int(), 1, 1}))})};
    EXPECT_TRUE(b.status().ok()) << b.status().error().to_string();
    for (size_t i = 0; i < ends.size(); ++i) graph->add_output(ends[i], fmt::format("z{}", i));
    graph->add_output(made[0], "first");
    return graph;
}

// One layer of attention: three projections of one input, two products of activations.
std::unique_ptr<Graph> attention(Dice& dice) {
    auto graph = std::make_unique<Graph>("attention");
    Builder b(*graph);
    const int64_t batch = 1 + dice.below(2), length = dice.one_of<int64_t>({1, 3, 5, 7});
    const int64_t heads = 1 + dice.below(3), depth = dice.one_of<int64_t>({1, 3, 4}), width = heads * depth;
    Value* x = graph->add_input("x", TensorType{DType::f32, Shape{batch, length, width}});
    auto projected = [&] {
        Value* v = b.matmul(x, b.constant(dice.tensor({width, width})));
        if (dice.chance(60)) v = b.add(v, b.constant(dice.tensor({width})));
        v = b.op("reshape", {v, b.ints({batch, length, heads, depth})});
        return b.op("transpose", {v}, {{"perm", list({0, 2, 1, 3})}});
    };
    Value *q = projected(), *k = projected(), *v = projected();
    Value* scores = b.matmul(q, b.op("transpose", {k}, {{"perm", list({0, 1, 3, 2})}}));
    scores = b.op("softmax", {b.mul(scores, b.scalar(0.5, DType::f32))}, {{"axis", Attr(int64_t(-1))}});
    Value* mixed = b.op("transpose", {b.matmul(scores, v)}, {{"perm", list({0, 2, 1, 3})}});
    mixed = b.op("reshape", {mixed, b.ints({batch, length, width})});
    Value* out = b.add(x, b.matmul(mixed, b.constant(dice.tensor({width, width}))));
    for (int i = 0; i < 2; ++i) {
        Value* wide = b.op("relu", {b.matmul(out, b.constant(dice.tensor({width, 5})))});
        graph->add_output(b.matmul(wide, b.constant(dice.tensor({5, 3}))), fmt::format("y{}", i));
    }
    EXPECT_TRUE(b.status().ok()) << b.status().error().to_string();
    return graph;
}

struct Kind {
    const char* name;
    MakeGraph make;
    int graphs;
    size_t least;  // rewritten candidates in all of them: the test is of those
};

class SearchedModels : public testing::TestWithParam<std::tuple<Kind, Strategy>> {};

// Launches cost so much here that whatever merges kernels pays: the point is that much is rewritten.
TEST_P(SearchedModels, ComputeTheSame) {
    const auto& [kind, strategy] = GetParam();
    size_t rewritten = 0;
    for (int i = 0; i < kind.graphs; ++i) {
        const uint64_t seed = 7000 + uint64_t(i);
        SCOPED_TRACE(fmt::format("{}, seed {}", kind.name, seed));
        Dice dice(seed);
        std::unique_ptr<Graph> graph = kind.make(dice);
        auto cost = estimated_cost({.launch = 1e-3});
        auto found = search(*graph, search_rules(), *cost, {.strategy = strategy, .budget = 30});
        for (const Candidate& c : found.candidates) {
            verify(*c.graph);
            expect_same(*graph, *c.graph, dice, fmt::format("{}, seed {}, {}", kind.name, seed, c.what));
            if (HasFatalFailure()) return;
        }
        rewritten += found.candidates.size() - 1;
    }
    std::printf("%s: seeds 7000 to %d, %zu rewritten candidates\n", kind.name, 7000 + kind.graphs - 1, rewritten);
    EXPECT_GE(rewritten, kind.least);
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<Kind, Strategy>>& info) {
    const auto& [kind, strategy] = info.param;
    return fmt::format("{}_{}", kind.name, strategy == Strategy::EGraph ? "egraph" : "backtrack");
}

const Kind kRecurrent{"recurrent", recurrent, 12, 10}, kBranches{"branches", branches, 20, 10},
    kAttention{"attention", attention, 12, 10};

INSTANTIATE_TEST_SUITE_P(Kinds, SearchedModels,
                         testing::Combine(testing::Values(kRecurrent, kBranches, kAttention),
                                          testing::Values(Strategy::EGraph, Strategy::Backtrack)),
                         name_of_case);

}  // namespace
}  // namespace tessera::searched_models_test
