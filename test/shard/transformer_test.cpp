// A transformer's blocks under the parallelisms that are usual: which collectives come of few annotations, and that the
// results stay what they are.
#include "graph/gradient/gradient.h"
#include "graph/text/parse.h"
#include "shard/drawn.h"
#include "shard/report.h"
#include "shard/search/search.h"

namespace tessera::test::shard_transformer_test {

using namespace shard;

namespace {

// [4, 6, 16] tokens, 4 heads; weights are inputs, so that the text stays short.
std::string block(int number, const std::string& x, std::string& inputs) {
    const std::string n = std::to_string(number);
    for (const char* w : {"wq", "wk", "wv", "wo"}) inputs += fmt::format(", {}{}: f32[16,16]", w, n);
    inputs += fmt::format(", g{0}: f32[16], h{0}: f32[16], w1{0}: f32[16,32], b1{0}: f32[32], w2{0}: f32[32,16]", n);
    std::string text = R"(
  %nB = layer_normalization(%X, gB, axis=-1)
  %qB = transpose(reshape(matmul(%nB, wqB), [4,12,4,4]), perm=[0,2,1,3])
  %kB = transpose(reshape(matmul(%nB, wkB), [4,12,4,4]), perm=[0,2,3,1])
  %vB = transpose(reshape(matmul(%nB, wvB), [4,12,4,4]), perm=[0,2,1,3])
  %aB = matmul(softmax(mul(matmul(%qB, %kB), 0.5), axis=-1), %vB)
  %oB = reshape(transpose(%aB, perm=[0,2,1,3]), [4,12,16])
  %yB = add(%X, matmul(%oB, woB))
  %mB = layer_normalization(%yB, hB, axis=-1)
  %uB = gelu(add(matmul(%mB, w1B), b1B))
  %zB = add(%yB, matmul(%uB, w2B)))";
    for (const auto& [from, to] : {std::pair<std::string, std::string>{"X", x}, {"B", n}})
        for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
            text.replace(at, from.size(), to);
    return text;
}

std::shared_ptr<Graph> transformer(int blocks) {
    std::string inputs = "x: f32[4,12,16]", body, x = "x";
    for (int i = 0; i < blocks; ++i) {
        body += block(i, x, inputs);
        x = fmt::format("z{}", i);
    }
    auto parsed = parse(fmt::format("graph g({}) {{{}\n  return %{}\n}}", inputs, body, x));
    EXPECT_TRUE(parsed.ok()) << parsed.error().to_string();
    auto graph = graph_to_shard(**parsed, {});
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    return *graph;
}

Shardings annotated(const Graph& graph, const Mesh& mesh, std::vector<std::pair<std::string, std::string>> list) {
    Shardings given;
    for (const auto& [name, text] : list) {
        const Value* v = graph.find_value(name);
        EXPECT_TRUE(v) << name;
        given[v] = *parse_sharding(text, mesh, divisible_sizes(*v)->size());
    }
    return given;
}

// "2 all_reduce over model" and so on, in order of their names.
std::vector<std::string> collectives(const Plan& plan) {
    std::map<std::string, int> counts;
    for (const PlanStep& s : plan.steps)
        if (is_collective(plan, s))
            ++counts[fmt::format("{} over {}", kind_of(plan, s), axis_names(plan.mesh, collective_axes(plan, s)))];
    std::vector<std::string> list;
    for (const auto& [kind, n] : counts) list.push_back(fmt::format("{} {}", n, kind));
    return list;
}

// Within the rounding of partial sums.
bool near(const Tensor& a, const Tensor& b) {
    for (int64_t i = 0; i < a.elements(); ++i)
        if (!(std::fabs(a.real_at(i) - b.real_at(i)) <= 1e-5)) return false;
    return a.sizes() == b.sizes();
}

// Models this small would rather receive weights than combine results.
std::unique_ptr<Plan> checked_plan(const std::shared_ptr<Graph>& graph, const Mesh& mesh, const Shardings& given,
                                   const PlanOptions& options = {.operations_per_byte = 5}) {
    auto plan = make_plan(graph, mesh, given, options);
    EXPECT_TRUE(plan.ok()) << plan.error().to_string();
    Inputs named;
    std::vector<Datum> inputs;
    const RandomStream random(7, "transformer");
    uint64_t next = 0;
    for (const auto& in : graph->inputs()) {
        Tensor t = *Tensor::zeros(DType::f32, *in->type().tensor().shape.sizes());
        for (float& x : t.mutable_as<float>()) x = float(random.uniform(next++) - 0.5);
        inputs.emplace_back(t);
        named[in->name()] = t;
    }
    const auto want = evaluate(*graph, named);
    EXPECT_TRUE(want.ok()) << want.error().to_string();
    EXPECT_EQ(wrong_on_threads(**plan, inputs, *want, near), "");
    return std::move(*plan);
}

using Strings = std::vector<std::string>;

TEST(ShardTransformer, DataParallelismGathersOnlyTheResult) {
    const auto graph = transformer(2);
    const Mesh mesh = *Mesh::parse("data=2");
    const auto plan = checked_plan(graph, mesh, annotated(*graph, mesh, {{"x", "data,_,_"}}));
    EXPECT_EQ(collectives(*plan), (Strings{"1 all_gather over data"}));
    EXPECT_EQ(plan->conflicts, Strings());
}

TEST(ShardTransformer, TwoAnnotationsGiveMegatronsBlock) {
    const auto graph = transformer(1);
    const Mesh mesh = *Mesh::parse("model=4");
    const auto plan = checked_plan(graph, mesh, annotated(*graph, mesh, {{"wq0", "_,model"}, {"w10", "_,model"}}));
    EXPECT_EQ(collectives(*plan), (Strings{"2 all_reduce over model"}));
    EXPECT_EQ(plan->conflicts, Strings());
    const std::pair<const char*, const char*> kMegatron[] = {{"wk0", "-,model"}, {"wv0", "-,model"}, {"wo0", "model,-"},
                                                             {"b10", "model"},   {"w20", "model,-"}, {"g0", "-"}};
    for (const auto& [name, text] : kMegatron)
        EXPECT_EQ(to_string(plan->shardings.at(graph->find_value(name)), mesh), text) << name;
}

TEST(ShardTransformer, DataAndTensorParallelismTogether) {
    const auto graph = transformer(1);
    const Mesh mesh = *Mesh::parse("data=2,model=2");
    const auto plan =
        checked_plan(graph, mesh, annotated(*graph, mesh, {{"x", "data,_,_"}, {"wq0", "_,model"}, {"w10", "_,model"}}));
    EXPECT_EQ(collectives(*plan), (Strings{"1 all_gather over data", "2 all_reduce over model"}));
}

TEST(ShardTransformer, SequencesAreGatheredForKeysAndValuesOnly) {
    const auto graph = transformer(1);
    const Mesh mesh = *Mesh::parse("sequence=3");
    const auto plan = checked_plan(graph, mesh, annotated(*graph, mesh, {{"x", "_,sequence,_"}}));
    for (const std::string& c : collectives(*plan))
        EXPECT_NE(c.find("all_gather over sequence"), std::string::npos) << c;
    EXPECT_EQ(to_string(plan->shardings.at(graph->outputs()[0]), mesh), "-,sequence,-");
}

TEST(ShardTransformer, DividedWeightsAreGatheredForDividedData) {  // ZeRO, stage 3
    const auto graph = transformer(1);
    const Mesh mesh = *Mesh::parse("data=2");
    const auto plan =
        checked_plan(graph, mesh, annotated(*graph, mesh, {{"x", "data,_,_"}, {"w10", "data,_"}, {"w20", "data,_"}}));
    EXPECT_EQ(collectives(*plan), (Strings{"3 all_gather over data"}));
}

TEST(ShardTransformer, AnnotationsThatDisagreeAreReported) {
    const auto graph = transformer(1);
    const Mesh mesh = *Mesh::parse("a=2,b=2");
    const auto plan = checked_plan(graph, mesh, annotated(*graph, mesh, {{"w10", "_,a"}, {"b10", "b"}}));
    ASSERT_FALSE(plan->conflicts.empty());
    EXPECT_NE(plan->conflicts[0].find("divided over"), std::string::npos) << plan->conflicts[0];
}

// With the weights as constants, whose bytes count.
std::shared_ptr<Graph> with_weights(const std::shared_ptr<Graph>& graph) {
    const RandomStream random(3, "weights");
    uint64_t next = 0;
    for (const auto& in : graph->inputs()) {
        if (in->name() == "x") continue;
        Tensor t = *Tensor::zeros(DType::f32, *in->type().tensor().shape.sizes());
        for (float& w : t.mutable_as<float>()) w = float(random.uniform(next++) - 0.5);
        graph->replace_uses(in.get(), graph->constant(t, "weight_" + in->name()));
    }
    return graph;
}

std::string sharding_of(const Plan& plan, const std::string& name) {
    return to_string(plan.shardings.at(plan.graph->find_value(name)), plan.mesh);
}

TEST(ShardTransformer, ASearchSaysWhereMemoryDoesNotSuffice) {
    const auto graph = with_weights(transformer(1));
    const auto found = search_shardings(graph, *Mesh::parse("model=2"), {}, {.memory = 100});
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code(), Code::E0408);
}

// Experts: tokens are divided over the axis that experts are divided over, in groups. They go to the experts and back.
TEST(ShardTransformer, TokensGoToExpertsAndBack) {
    auto parsed = parse(
        "graph g(x: f32[4,6,8], m: f32[4,6,4,3], w: f32[4,8,8]) {\n"
        "  %d = einsum(x, m, equation=\"gsh,gsec->egch\")\n  %h = relu(einsum(%d, w, equation=\"egch,ehk->egck\"))\n"
        "  %o = einsum(%h, m, equation=\"egck,gsec->gsk\")\n  return %o\n}");
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    const auto prepared = graph_to_shard(**parsed, {});
    ASSERT_TRUE(prepared.ok()) << prepared.error().to_string();
    const Mesh mesh = *Mesh::parse("expert=4");
    const auto plan =
        checked_plan(*prepared, mesh,
                     annotated(**prepared, mesh, {{"x", "expert,_,_"}, {"w", "expert,_,_"}, {"m", "expert,_,_,_"}}));
    Strings found = collectives(*plan);
    EXPECT_EQ(found, (Strings{"1 all_gather over expert", "2 all_to_all over expert"}));
}

// Data parallelism of a training step: gradients of weights are sums over the batch, which ranks have terms of.
TEST(ShardTransformer, GradientsAreReducedOverTheBatch) {
    auto parsed = parse(
        "graph g(x: f32[8,4], t: f32[8,3], w1: f32[4,6], w2: f32[6,3]) {\n"
        "  %h = relu(matmul(x, w1))\n  %d = sub(matmul(%h, w2), t)\n  %l = reduce_sum(mul(%d, %d), keepdims=0)\n"
        "  return %l\n}");
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    Graph& g = **parsed;
    Builder b(g);
    const auto made = gradients(b, {{g.outputs()[0]}}, {g.find_value("w1"), g.find_value("w2")});
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    g.add_output(b.sub(g.find_value("w1"), (*made)[0]), "new_w1");
    g.add_output(b.sub(g.find_value("w2"), (*made)[1]), "new_w2");
    const auto prepared = graph_to_shard(g, {});
    ASSERT_TRUE(prepared.ok()) << prepared.error().to_string();
    const Mesh mesh = *Mesh::parse("data=4");
    Shardings given = annotated(**prepared, mesh, {{"x", "data,_"}, {"t", "data,_"}});
    EXPECT_EQ(collectives(*checked_plan(*prepared, mesh, given)), (Strings{"3 all_reduce over data"}));
    // ZeRO, stage 3: each rank has and updates a part of the weights, for which it needs that part of the gradient
    // only.
    given[(*prepared)->outputs()[1]] = *parse_sharding("data,_", mesh, 2);
    const auto third = checked_plan(*prepared, mesh, given);
    EXPECT_EQ(collectives(*third),
              (Strings{"2 all_gather over data", "2 all_reduce over data", "1 reduce_scatter over data"}));
    EXPECT_EQ(sharding_of(*third, "w1"), "data,-");
    // Stage 2: the weights are whole, gradients and updates are not.
    given[(*prepared)->find_value("w1")] = *parse_sharding("-,-", mesh, 2);
    EXPECT_EQ(collectives(*checked_plan(*prepared, mesh, given)),
              (Strings{"1 all_gather over data", "2 all_reduce over data", "1 reduce_scatter over data"}));
}

}  // namespace
}  // namespace tessera::test::shard_transformer_test
