// The pipeline as a whole. What each pass does is in test/files/.
#include "rewrite/passes/lowering_passes.h"
#include "rewrite/passes/optimize.h"

#include <gtest/gtest.h>

#include <set>

#include "graph/evaluate/evaluate.h"
#include "graph/onnx/from_onnx.h"
#include "graph/onnx/to_onnx.h"
#include "graph/peak.h"
#include "graph/text/parse.h"
#include "graph/text/print.h"
#include "graph/verify.h"
#include "onnx/read.h"
#include "onnx/write.h"

namespace tessera::optimize_test {
namespace {

std::unique_ptr<Graph> graph_of(std::string_view text) {
    auto graph = parse(text);
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    return graph.ok() ? std::move(*graph) : nullptr;
}

PipelineReport run(Graph& graph, PipelineOptions options = {}) {
    options.watch.verify = true;
    auto report = optimize(graph, options);
    EXPECT_TRUE(report.ok()) << report.error().to_string();
    return report.ok() ? std::move(*report) : PipelineReport{};
}

std::string bytes_of(const Graph& graph) {
    auto model = to_onnx(graph);
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    auto bytes = onnx::write_model(*model);
    EXPECT_TRUE(bytes.ok());
    return *bytes;
}

std::unique_ptr<Graph> read_back(const std::string& bytes) {
    auto held = std::make_shared<const std::string>(bytes);
    auto model = onnx::read_model(*held, held);
    EXPECT_TRUE(model.ok());
    auto graph = from_onnx(*model);
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    return std::move(*graph);
}

// Generated names, sizes known only at run time, nested graphs, constants that are outputs, an op that is written out.
constexpr const char* kMixed = R"(
graph mixed(c: bool[], x: f32[B,S,8], w: f32[8,8]) -> (a, b, d, e) {
  const scale: f32[] = 2.0
  %m = matmul(x, w)
  %s = shape(%m)
  %v3 = gather(%s, [0])
  %v1 = gather(%s, [1])
  %v2 = concat(%v3, %v1, [2], [4], axis=0)
  %h = reshape(%m, %v2)
  %t = transpose(%h, [0,2,1,3])
  %r = rsqrt(abs(%t))
  %nz = non_zero(%r)
  %f = cast(%nz, to=1)
  %y = if(c, then_branch=graph yes() {
    %v9 = mul(scale, 3.0:f32)
    %z = mul(%r, %v9)
    return %z
  }, else_branch=graph no() { return identity(%t) })
  %k = add(scale, 1.0:f32)
  return %y, %f, %k, x
}
)";

TEST(Optimize, ASecondTimeChangesNoByte) {
    auto graph = graph_of(kMixed);
    run(*graph);
    std::string once = bytes_of(*graph);
    auto again = read_back(once);
    PipelineReport report = run(*again, {.record = true});
    EXPECT_TRUE(report.applications.empty()) << report.applications[0].rule;
    EXPECT_EQ(bytes_of(*again), once) << print(*graph) << print(*again);
}

TEST(Optimize, ASecondTimeChangesNoByteOfAnOlderModel) {
    // The axes become attributes, and lose their names; the softmax, the normalization and the gelu are written out.
    auto graph = graph_of(R"(
model {
  opset = 12
}
graph g(x: f32[2,4], t: bool[]) -> (a, b, c, d, e) {
  const last: i64[1] = [-1]
  const first: i64[1] = [0]
  const s: f32[4] = [1.0,2.0,3.0,4.0]
  %m = reduce_max(x, first)
  %e = exp(sub(x, %m))
  %a = div(%e, reduce_sum(%e, first))
  %d = sub(x, reduce_mean(x, last))
  %n = div(%d, sqrt(add(reduce_mean(pow(%d, 2.0:f32), last), 0.001:f32)))
  %b = mul(add(mul(%n, s), s), %d)
  %p = slice(x, [0], [1], [0])
  %q = slice(x, [1], [2], [0])
  %z = if(t, then_branch=graph yes() {
    return mul(%d, 3.0:f32)
  }, else_branch=graph no() { return add(%d, 5.0:f32) })
  %r = mul(%p, mul(add(erf(div(%p, 1.4142135:f32)), 1.0:f32), 0.5:f32))
  return %a, %b, %r, %q, %z
}
)");
    run(*graph);
    std::string once = bytes_of(*graph);
    auto again = read_back(once);
    EXPECT_EQ(again->info().opset, 12);
    run(*again);
    EXPECT_EQ(bytes_of(*again), once) << print(*graph) << print(*again);
}

TEST(Optimize, TheSameGraphGivesTheSameBytes) {
    auto a = graph_of(kMixed), b = graph_of(kMixed);
    run(*a);
    run(*b, {.record = true});
    EXPECT_EQ(bytes_of(*a), bytes_of(*b));
}

TEST(Optimize, KeepsInputsOutputsAndAnswers) {
    auto before = graph_of(kMixed), after = before->clone();
    run(*after);
    EXPECT_EQ(before->output_names(), after->output_names());
    ASSERT_EQ(before->inputs().size(), after->inputs().size());
    for (size_t i = 0; i < before->inputs().size(); ++i) {
        EXPECT_EQ(before->inputs()[i]->name(), after->inputs()[i]->name());
        EXPECT_EQ(before->inputs()[i]->type(), after->inputs()[i]->type());
    }
    EXPECT_LT(after->node_count(), before->node_count());
    Tensor x = *Tensor::zeros(DType::f32, {2, 3, 8}), w = *Tensor::zeros(DType::f32, {8, 8});
    for (int64_t i = 0; i < x.elements(); ++i) x.set_real(i, 0.25 * double(i % 7) - 0.5);
    for (int64_t i = 0; i < w.elements(); ++i) w.set_real(i, 0.125 * double(i % 5) + 0.25);
    for (bool c : {false, true}) {
        Inputs inputs = {{"c", Tensor::scalar(c)}, {"x", x}, {"w", w}};
        auto expected = evaluate(*before, inputs), actual = evaluate(*after, inputs);
        ASSERT_TRUE(expected.ok() && actual.ok());
        for (size_t i = 0; i < expected->size(); ++i) {
            const Tensor &want = (*expected)[i].tensor(), &got = (*actual)[i].tensor();
            ASSERT_EQ(want.sizes(), got.sizes());
            for (int64_t k = 0; k < want.elements(); ++k) EXPECT_NEAR(want.real_at(k), got.real_at(k), 1e-5);
        }
    }
}

TEST(Optimize, OutputsThatAreInputsConstantsOrTheSame) {
    auto graph = graph_of(
        "graph g(x: f32[2]) -> (a, b, c, d) { %i = identity(x) %n = neg(x) %m = neg(x) "
        "return %i, %n, %m, add(1.0:f32, 1.0:f32) }");
    run(*graph);
    EXPECT_EQ(graph->outputs()[0], graph->inputs()[0].get());
    EXPECT_EQ(graph->outputs()[1], graph->outputs()[2]);
    EXPECT_EQ(graph->outputs()[1]->name(), "b");
    EXPECT_TRUE(graph->outputs()[3]->is_constant());
    EXPECT_EQ(graph->outputs()[3]->name(), "d");
    auto again = read_back(bytes_of(*graph));
    EXPECT_EQ(again->output_names(), graph->output_names());
}

TEST(Optimize, GeneratedNamesDoNotTakeTheSymbolsOfOthers) {
    // v1 goes, its symbol stays in the type of y: no value may be named v1 whose size would then be the same symbol.
    auto graph = graph_of(
        "graph g(x: f32[N], z: f32[M]) -> (p, q) { %v1 = non_zero(x) %p = cast(%v1, to=1) "
        "%v0 = non_zero(z) %q = cast(%v0, to=1) return %p, %q }");
    run(*graph);
    const Shape &p = graph->outputs()[0]->type().tensor().shape, &q = graph->outputs()[1]->type().tensor().shape;
    EXPECT_FALSE(p[1] == q[1]) << print(*graph);
}

TEST(Optimize, EachPassIsNamedOnceAndSaysWhatItIsFor) {
    std::set<std::string> names;
    for (const auto& table : {pass_table(), lowering_passes({})})
        for (const Pass& pass : table) {
            EXPECT_TRUE(names.insert(pass.name).second) << pass.name;
            EXPECT_FALSE(pass.purpose.empty()) << pass.name;
        }
    // No rule file is left out.
    for (const RuleFile& file : built_in_rule_files()) EXPECT_TRUE(names.contains(std::string(file.name))) << file.name;
}

TEST(Optimize, StopsAfterAPassAndTellsOfEach) {
    auto graph = graph_of("graph g(x: f32[2]) { return add(x, add(1.0:f32, 2.0:f32)) }");
    std::vector<std::string> seen;
    PipelineOptions options{.watch = {.stop_after = "fold_constants"}};
    options.watch.after = [&](const std::string& pass, const Graph&, Changed) { seen.push_back(pass); };
    run(*graph, options);
    EXPECT_EQ(seen.back(), "fold_constants");
    EXPECT_EQ(graph->nodes().size(), 1u);
    auto wrong = optimize(*graph, {.watch = {.stop_after = "fold_constant"}});
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().code(), Code::E0501);
}

// Where the passes found nothing more and tidying has only named and ordered, nothing is run again to see that.
TEST(Optimize, AGraphAtRestIsSeenOnce) {
    auto graph = graph_of("graph g(x: f32[N,2]) { return add(x, mul(2.0:f32, 3.0:f32)) }");
    run(*graph);
    PipelineReport again = run(*graph);
    EXPECT_EQ(again.rounds, 1);
    for (const PassTime& p : again.passes) EXPECT_LE(p.runs, 1u) << p.pass;
    auto compiled = graph_of("graph g(x: f32[N,2]) { return add(x, mul(2.0:f32, 3.0:f32)) }");
    PipelineReport first = run(*compiled, {.last_phase = Phase::Rewrite});
    EXPECT_EQ(first.rounds, 2);
    for (const PassTime& p : first.passes) EXPECT_LE(p.runs, 2u) << p.pass;
}

TEST(Optimize, CanBeCancelled) {
    auto graph = graph_of(kMixed);
    std::atomic<bool> cancel{true};
    auto done = optimize(*graph, {.cancel = &cancel});
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code(), Code::E0410);
    EXPECT_TRUE(violations(*graph).empty());
}

TEST(Optimize, FoldsOnlyUpToItsLimit) {
    constexpr const char* text = "graph g(x: f32[64]) { return add(x, expand(1.0:f32, [64])) }";
    auto small = graph_of(text), large = graph_of(text);
    PassContext tight, wide;
    tight.fold_limit = 100;
    wide.fold_limit = 1000;
    ASSERT_TRUE(fold_constants(*small, tight).ok() && fold_constants(*large, wide).ok());
    EXPECT_EQ(small->nodes().size(), 2u);
    EXPECT_EQ(large->nodes().size(), 1u);
}

TEST(Optimize, SharesLargeConstants) {
    Graph graph("g");
    Value* x = graph.add_input("x", Type(DType::f32, Shape{100, 400}));
    Tensor w = *Tensor::zeros(DType::f32, {100, 400}), v = *Tensor::zeros(DType::f32, {100, 400});
    Tensor other = *Tensor::zeros(DType::f32, {100, 400});
    other.set_real(12345, 1);
    for (Tensor* t : {&w, &v, &other}) {
        Value* c = graph.constant(*t, fmt::format("w{}", graph.constants().size()));
        graph.add_output((*graph.add({.op = find_op("add"), .inputs = {x, c}}))->output());
    }
    ASSERT_EQ(graph.constants().size(), 3u);
    PassContext context;
    ASSERT_TRUE(*share_common(graph, context));
    EXPECT_EQ(graph.constants().size(), 2u);
    EXPECT_EQ(graph.nodes().size(), 2u);
}

TEST(Optimize, MultipliesConstantsWhereThatIsSoonDone) {
    for (int64_t rows : {8, 1100}) {
        Graph graph("g");
        Value* last = graph.add_input("x", Type(DType::f32, Shape{1, rows}));
        for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{rows, 1000}, {1000, 1000}}) {
            Value* w = graph.constant(*Tensor::zeros(DType::f32, sizes), fmt::format("w{}", graph.constants().size()));
            last = (*graph.add({.op = find_op("matmul"), .inputs = {last, w}}))->output();
        }
        graph.add_output(last);
        ASSERT_TRUE(optimize(graph).ok());
        EXPECT_EQ(graph.nodes().size(), rows == 8 ? 1u : 2u);
    }
}

TEST(Peak, CountsWhatIsAliveAtTheSameTime) {
    auto graph = graph_of("graph g(x: f32[N]) { %a = neg(x) %b = abs(%a) %c = add(%b, x) return %c }");
    // x and a; x, a and b; x, b and c.
    EXPECT_EQ(peak_memory(*graph, {{"N", 10}}).bytes, 3 * 10 * 4);
    EXPECT_EQ(peak_memory(*graph).bytes, 3 * 4);
    auto chain = graph_of("graph g(x: f32[8]) { return neg(neg(neg(x))) }");
    EXPECT_EQ(peak_memory(*chain).bytes, 2 * 8 * 4);
    auto unknown = graph_of("graph g(x: f32[...]) { return neg(x) }");
    EXPECT_FALSE(peak_memory(*unknown).complete);
}

}  // namespace
}  // namespace tessera::optimize_test
