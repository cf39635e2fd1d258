// Searches on random graphs: every candidate of either strategy computes what the input does, limits are kept, and the
// rewrites that searches are for are found.
#include "search/search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "graph/builder.h"
#include "graph/text/parse.h"
#include "graph/verify.h"
#include "rewrite/refute/refute.h"
#include "search/compare_graphs.h"
#include "search/extract.h"
#include "search/search_rules.h"

namespace tessera::search_test {
namespace {

// Products, element-wise ops and cuts over a few matrices, with many that share an operand.
std::unique_ptr<Graph> random_matrices(Dice& dice) {
    auto graph = std::make_unique<Graph>("g");
    Builder b(*graph);
    const int64_t rows = 1 + dice.below(5), width = 1 + dice.below(6);
    std::vector<Value*> values;
    for (int i = 0; i < 2; ++i)
        values.push_back(graph->add_input(fmt::format("x{}", i), TensorType{DType::f32, Shape{rows, width}}));
    std::vector<Value*> weights;
    for (int i = 0; i < 3; ++i) weights.push_back(b.constant(dice.tensor({width, width})));
    Value* bias = b.constant(dice.tensor({width}));
    for (int i = 0; i < 12; ++i) {
        Value* x = values[size_t(dice.below(int64_t(values.size())))];
        Value* y = values[size_t(dice.below(int64_t(values.size())))];
        Value* w = weights[size_t(dice.below(3))];
        switch (dice.below(7)) {
            case 0:
            case 1: values.push_back(b.matmul(x, w)); break;
            case 2: values.push_back(b.op("gemm", {x, w, bias}, {{"transB", Attr(int64_t(1))}})); break;
            case 3: values.push_back(b.add(x, y)); break;
            case 4: values.push_back(b.op("relu", {x})); break;
            case 5: values.push_back(b.mul(x, y)); break;
            default: values.push_back(b.slice(b.concat({x, y}, 0), {0}, {rows}, {0})); break;
        }
    }
    EXPECT_TRUE(b.status().ok());
    for (size_t i = 0; i < 3; ++i) graph->add_output(values[values.size() - 1 - i], fmt::format("y{}", i));
    graph->erase_unused();
    return graph;
}

std::unique_ptr<Graph> random_images(Dice& dice) {
    auto graph = std::make_unique<Graph>("g");
    Builder b(*graph);
    const int64_t channels = 1 + dice.below(4);
    std::vector<Value*> values = {graph->add_input(
        "x", TensorType{DType::f32, Shape{1 + dice.below(2), channels, 3 + dice.below(4), 3 + dice.below(5)}})};
    for (int i = 0; i < 7; ++i) {
        Value* x = values[size_t(dice.below(int64_t(values.size())))];
        const int64_t k = dice.chance(50) ? 1 : 3;
        AttrMap attrs{{"pads", Attr(std::vector<int64_t>(4, k / 2))}};
        switch (dice.below(4)) {
            case 0: values.push_back(b.op("relu", {x})); break;
            case 1: values.push_back(b.add(x, values[size_t(dice.below(int64_t(values.size())))])); break;
            default: values.push_back(b.op("conv", {x, b.constant(dice.tensor({channels, channels, k, k}))}, attrs));
        }
    }
    EXPECT_TRUE(b.status().ok());
    graph->add_output(b.concat({values[values.size() - 1], values[values.size() - 2], values[1]}, 1), "y");
    graph->erase_unused();
    return graph;
}

// Kernels cost so much to launch here that merging always pays: the point is that much is rewritten.
std::unique_ptr<CostModel> eager_cost() { return estimated_cost({.launch = 1e-3}); }

void check_searches(std::unique_ptr<Graph> (*make)(Dice&), Strategy strategy, int count, size_t least) {
    size_t rewritten = 0;
    for (int seed = 0; seed < count; ++seed) {
        Dice dice{uint64_t(seed)};
        std::unique_ptr<Graph> graph = make(dice);
        auto cost = eager_cost();
        SearchOptions options{.strategy = strategy, .budget = 40};
        auto found = search(*graph, search_rules(), *cost, options);
        ASSERT_GE(found.candidates.size(), 1u);
        EXPECT_EQ(found.candidates[0].what, "input");
        for (const Candidate& c : found.candidates) {
            verify(*c.graph);
            expect_same(*graph, *c.graph, dice, fmt::format("seed {} {}", seed, c.what));
        }
        rewritten += found.candidates.size() - 1;
    }
    EXPECT_GE(rewritten, least);
}

TEST(Search, MatricesStayTheSameThroughTheEGraph) { check_searches(random_matrices, Strategy::EGraph, 100, 30); }
TEST(Search, ImagesStayTheSameThroughTheEGraph) { check_searches(random_images, Strategy::EGraph, 60, 8); }
TEST(Search, MatricesStayTheSameThroughBacktracking) { check_searches(random_matrices, Strategy::Backtrack, 60, 3); }
TEST(Search, ImagesStayTheSameThroughBacktracking) { check_searches(random_images, Strategy::Backtrack, 60, 5); }

// Whether it pays or not.
TEST(Search, EveryStepOfTheEGraphStaysTheSame) {
    size_t built = 0;
    for (int seed = 0; seed < 300; ++seed) {
        Dice dice{uint64_t(1000 + seed)};
        std::unique_ptr<Graph> graph = seed % 2 ? random_matrices(dice) : random_images(dice);
        EGraph egraph(graph->clone());
        Saturation saturation = saturate(egraph, search_rules(), {});
        auto cost = estimated_cost();
        Extractor extractor(egraph, saturation, *cost);
        for (size_t i = 0; i < extractor.alternatives().size(); ++i) {
            Extraction e = extractor.with({i});
            if (std::isinf(e.cost)) continue;
            std::unique_ptr<Graph> made = extractor.build(e);
            verify(*made);
            expect_same(*graph, *made, dice, saturation.steps[extractor.alternatives()[i].steps[0]].rule->name);
            ++built;
        }
    }
    EXPECT_GE(built, 100u);
}

std::unique_ptr<Graph> graph_of(const std::string& text) {
    auto g = parse(text);
    EXPECT_TRUE(g.ok()) << (g.ok() ? "" : g.error().to_string());
    return std::move(*g);
}

size_t count_ops(const Graph& graph, std::string_view op) {
    size_t n = 0;
    for (const auto& node : graph.nodes()) n += node->op().name == op;
    return n;
}

TEST(Search, ProductsThatShareAnInputAreMergedAllAtOnce) {
    Dice dice(1);
    Graph graph("g");
    Builder b(graph);
    Value* x = graph.add_input("x", TensorType{DType::f32, Shape{3, 5}});
    for (int i = 0; i < 5; ++i)
        graph.add_output(b.matmul(x, b.constant(dice.tensor({5, 2 + i}))), fmt::format("y{}", i));
    auto cost = eager_cost();
    auto found = search(graph, search_rules(), *cost);
    ASSERT_GE(found.candidates.size(), 2u);
    EXPECT_EQ(count_ops(*found.candidates[1].graph, "matmul"), 1u);
    EXPECT_TRUE(found.complete) << found.stopped_by;
    EXPECT_LT(found.nodes, 60u);  // not all subsets of five
}

TEST(Search, RowsThatMeetOneMatrixAreStackedUnlessOneNeedsTheOther) {
    Dice dice(2);
    Graph graph("g");
    Builder b(graph);
    Value* w = b.constant(dice.tensor({4, 4}));
    Value* x = graph.add_input("x", TensorType{DType::f32, Shape{1, 4}});
    Value* y = graph.add_input("y", TensorType{DType::f32, Shape{1, 4}});
    Value* p = b.matmul(x, w);
    Value* q = b.matmul(y, w);
    graph.add_output(b.matmul(b.op("tanh", {b.add(p, q)}), w), "z");
    auto cost = eager_cost();
    auto found = search(graph, search_rules(), *cost);
    ASSERT_GE(found.candidates.size(), 2u);
    EXPECT_EQ(count_ops(*found.candidates[1].graph, "matmul"), 2u);
    expect_same(graph, *found.candidates[1].graph, dice, "stacked");
}

TEST(Search, ItsRulesHold) {
    for (const Rule* rule : search_rules()) {
        if (rule->source.rfind("stack.rules", 0) != 0) continue;
        auto verdict = refute(*rule);
        ASSERT_TRUE(verdict.ok());
        EXPECT_TRUE(as_status(*rule, *verdict).ok()) << rule->name;
    }
}

// A rule that doubles what it meets in every round.
TEST(Search, KeepsItsLimitsAndSaysSo) {
    auto rules = read_rules("grow: add(x:float, y) => add(add(y, 1.0), add(x, -1.0))", "test");
    ASSERT_TRUE(rules.ok()) << rules.error().to_string();
    std::vector<const Rule*> all;
    for (const Rule& r : *rules) all.push_back(&r);
    auto graph = graph_of("graph g(x: f32[4], y: f32[4]) -> (z) {\n  %z = add(x, y)\n  return %z\n}");
    auto cost = estimated_cost();
    SearchOptions options;
    options.limits.max_nodes = 300;
    options.limits.max_rounds = 100;
    auto found = search(*graph, all, *cost, options);
    EXPECT_FALSE(found.complete);
    EXPECT_FALSE(found.stopped_by.empty());
    EXPECT_LT(found.nodes, 1000u);
    EXPECT_GE(found.candidates.size(), 1u);
}

// Nothing that the rules' steps alone give is cheaper.
TEST(Search, ExtractionIsExactWhereItSaysSo) {
    size_t compared = 0;
    for (int seed = 0; seed < 120; ++seed) {
        Dice dice{uint64_t(5000 + seed)};
        std::unique_ptr<Graph> graph = random_matrices(dice);
        EGraph egraph(graph->clone());
        Saturation saturation = saturate(egraph, search_rules(), {});
        auto cost = estimated_cost({.flops = 1e9, .launch = 1e-5 * double(1 + dice.below(10))});
        Extractor extractor(egraph, saturation, *cost);
        Extraction best = extractor.best({.exact_looks = 3000000});
        if (!best.exact) continue;
        EXPECT_LE(best.cost, extractor.input().cost * (1 + 1e-9));
        EXPECT_LE(best.cost, extractor.greedy().cost * (1 + 1e-9));
        for (size_t i = 0; i < extractor.alternatives().size(); ++i) {
            EXPECT_LE(best.cost, extractor.with({i}).cost * (1 + 1e-9));
            ++compared;
        }
    }
    EXPECT_GE(compared, 30u);
}

// With no time for it, the input graph is still taken out, and what is found is no dearer.
TEST(Search, ExtractionKeepsItsDeadline) {
    for (int seed = 0; seed < 20; ++seed) {
        Dice dice{uint64_t(5000 + seed)};
        std::unique_ptr<Graph> graph = random_matrices(dice);
        EGraph egraph(graph->clone());
        Saturation saturation = saturate(egraph, search_rules(), {});
        auto cost = estimated_cost({.flops = 1e9, .launch = 1e-5});
        Extractor extractor(egraph, saturation, *cost);
        const Deadline past = Deadline::in(-1);
        const Extraction best = extractor.best({.until = past});
        EXPECT_LE(best.cost, extractor.input().cost * (1 + 1e-9));
        std::vector<size_t> all(extractor.alternatives().size());
        std::iota(all.begin(), all.end(), size_t{0});
        EXPECT_EQ(extractor.cheapest_of(all, {}, {.until = past}).cost, extractor.input().cost);
        EXPECT_LE(extractor.cheapest_of(all, best.steps, {}).cost, extractor.input().cost * (1 + 1e-9));
        auto found = search(*graph, search_rules(), *cost, {.until = past});
        EXPECT_EQ(found.candidates[0].what, "input");
    }
}

// A rule that grows has to save more than the margin.
TEST(Search, AMarginIsAskedOfRulesThatGrow) {
    const std::unique_ptr<Graph> graph = graph_of(R"(graph g(x: f32[64,64], y: f32[64,64], z: f32[64,64]) -> (a, b) {
  %a = matmul(x, y)
  %b = matmul(x, z)
  return %a, %b
})");
    auto cost = estimated_cost({.flops = 1e9, .launch = 1e-4});
    auto rules_of = [&](double margin) {
        SearchOptions options;
        options.margin = margin;
        auto found = search(*graph, search_rules(), *cost, options);
        return found.candidates.size() > 1 ? found.candidates[1].uses.size() : 0;
    };
    EXPECT_GT(rules_of(0), 0u);
    EXPECT_EQ(rules_of(10), 0u);
}

// The branches use what is rewritten around them.
TEST(Search, ControlFlowIsOneNode) {
    Dice dice(4);
    auto graph = graph_of(
        "graph g(c: bool[], x: f32[3,4], w: f32[4,4], v: f32[4,4]) { %p = matmul(x, w) %q = matmul(x, v) "
        "%a = if(c, then_branch=graph t() { %r = add(%p, %q) return %r }, else_branch=graph e() { %s = sub(%p, x) "
        "return %s }) %b = relu(%a) return %b, %q }");
    for (Strategy strategy : {Strategy::EGraph, Strategy::Backtrack}) {
        auto cost = eager_cost();
        Search found = search(*graph, search_rules(), *cost, {.strategy = strategy, .budget = 40});
        ASSERT_GE(found.candidates.size(), 2u);
        EXPECT_EQ(count_ops(*found.candidates[1].graph, "matmul"), 1u);
        EXPECT_EQ(count_ops(*found.candidates[1].graph, "if"), 1u);
        for (bool taken : {false, true}) {
            Inputs inputs{{"c", Tensor::scalar(taken)}};
            for (const char* name : {"x", "w", "v"})
                inputs.emplace(name, dice.tensor(name[0] == 'x' ? Sizes{3, 4} : Sizes{4, 4}));
            auto x = evaluate(*graph, inputs), y = evaluate(*found.candidates[1].graph, inputs);
            ASSERT_TRUE(x.ok() && y.ok());
            for (size_t i = 0; i < x->size(); ++i)
                for (int64_t k = 0; k < (*x)[i].tensor().elements(); ++k)
                    EXPECT_NEAR((*x)[i].tensor().real_at(k), (*y)[i].tensor().real_at(k), 1e-5);
        }
    }
}

// Costs of nodes by an attribute; counts how often it is asked.
class CostByTiles : public CostModel {
  public:
    double node(const Node& node) override {
        ++asked;
        if (node.op().name != "conv") return 1e-6;
        auto it = node.attrs().find("tiles");
        if (it == node.attrs().end()) return 1e-3;
        return 1e-3 * (1 + std::abs(double(std::get<std::vector<int64_t>>(it->second)[0]) - 4)) / 2;
    }
    std::optional<double> groups(const Graph& graph) override {
        ++weighed;
        return this->graph(graph);
    }
    std::string name() const override { return "tiles"; }
    size_t asked = 0, weighed = 0;
};

std::unique_ptr<Graph> chain_of_convs(int count, Dice& dice) {
    auto graph = std::make_unique<Graph>("g");
    Builder b(*graph);
    Value* x = graph->add_input("x", TensorType{DType::f32, Shape{1, 4, 9, 9}});
    for (int i = 0; i < count; ++i)
        x = b.op("relu", {b.op("conv", {x, b.constant(dice.tensor({4, 4, 3, 3}))},
                               {{"pads", Attr(std::vector<int64_t>(4, 1))}})});
    graph->add_output(x, "y");
    return graph;
}

// Nodes that differ in an attribute only are decided class by class, whatever their number.
TEST(Search, AlternativesThatDoNotInteractAreDecidedAlone) {
    Dice dice(5);
    auto graph = chain_of_convs(60, dice);
    CostByTiles cost;
    Search found = search(*graph, search_rules(), cost);
    ASSERT_GE(found.candidates.size(), 2u);
    EXPECT_EQ(found.candidates[1].what, "all profitable rules");
    for (const auto& node : found.candidates[1].graph->nodes())
        if (node->op().name == "conv") {
            ASSERT_TRUE(node->attrs().contains("tiles"));
            EXPECT_EQ(std::get<std::vector<int64_t>>(node->attrs().at("tiles")), (std::vector<int64_t>{4, 4}));
        }
    EXPECT_EQ(cost.weighed, found.candidates.size());
    EXPECT_GT(cost.asked, 60u);
}

// Blocks that are alike are one alternative for each rule, however many there are.
TEST(Search, RepeatedBlocksAreDecidedOnce) {
    size_t alternatives[2];
    for (int i = 0; i < 2; ++i) {
        Dice dice(6);
        EGraph egraph(chain_of_convs(i ? 40 : 5, dice));
        Saturation saturation = saturate(egraph, search_rules(), {});
        CostByTiles cost;
        alternatives[i] = Extractor(egraph, saturation, cost).alternatives().size();
    }
    EXPECT_EQ(alternatives[0], alternatives[1]);
}

TEST(Search, ASharedNodeCountsOnce) {
    // Merged, the product is read by both slices: as trees it would seem to cost twice.
    Dice dice(3);
    Graph graph("g");
    Builder b(graph);
    Value* x = graph.add_input("x", TensorType{DType::f32, Shape{64, 64}});
    for (int i = 0; i < 2; ++i) graph.add_output(b.matmul(x, b.constant(dice.tensor({64, 64}))), fmt::format("y{}", i));
    auto cost = estimated_cost({.launch = 1e-5});
    auto found = search(graph, search_rules(), *cost);
    ASSERT_GE(found.candidates.size(), 2u);
    EXPECT_LT(found.candidates[1].cost, found.candidates[0].cost);
}

}  // namespace
}  // namespace tessera::search_test
