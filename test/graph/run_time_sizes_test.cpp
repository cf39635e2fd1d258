// Sizes that only a run finds are called after the value that has them. Two values never share such a name: a rewrite
// that asks for equal sizes would take them for equal.
#include <gtest/gtest.h>

#include "graph/graph.h"
#include "graph/names.h"
#include "graph/text/parse.h"

namespace tessera::run_time_sizes_test {
namespace {

std::unique_ptr<Graph> graph_of(const std::string& text) {
    Result<std::unique_ptr<Graph>> graph = parse(text);
    EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.error().to_string());
    return graph.ok() ? std::move(*graph) : nullptr;
}

TEST(RunTimeSizes, OfBranchesStayInside) {
    auto graph = graph_of(R"(
graph g(x: f32[A,B], u: f32[C,D], s: i64[2], t: i64[2], c: bool[]) -> (y, z) {
  %y = if(c, else_branch=graph e1() {
    %e = expand(x, t)
    return %e
  }, then_branch=graph t1() {
    %e = expand(x, s)
    return %e
  })
  %z = if(c, else_branch=graph e2() {
    %e = expand(u, s)
    return %e
  }, then_branch=graph t2() {
    %e = expand(u, t)
    return %e
  })
  return %y, %z
})");
    ASSERT_TRUE(graph);
    EXPECT_NE(graph->outputs()[0]->type(), graph->outputs()[1]->type());
}

TEST(RunTimeSizes, OfBodiesStayInside) {
    auto graph = graph_of(R"(
graph g(x: f32[A], u: f32[B], s: i64[1], n: i64[]) -> (y, z) {
  %y = loop(n, _, body=graph b1(i: i64[], go: bool[]) {
    %e = expand(x, s)
    return %go, %e
  })
  %z = loop(n, _, body=graph b2(i: i64[], go: bool[]) {
    %e = expand(u, s)
    return %go, %e
  })
  return %y, %z
})");
    ASSERT_TRUE(graph);
    const Shape &y = graph->outputs()[0]->type().tensor().shape, &z = graph->outputs()[1]->type().tensor().shape;
    ASSERT_EQ(y.rank(), 2);
    EXPECT_NE(y[1], z[1]);
}

TEST(RunTimeSizes, OfElementsOfASequenceDiffer) {
    auto graph = graph_of(R"(
graph g(x: f32[A,B], y: f32[C,D], p: i64[2], k: i64[]) -> (a, b, c, d) {
  const zero: i64[] = 0
  %q = sequence_construct(x, y)
  %a = sequence_at(%q, zero)
  %b = sequence_at(%q, k)
  %s = split_to_sequence(x, p)
  %c = sequence_at(%s, zero)
  %d = sequence_at(%s, k)
  return %a, %b, %c, %d
})");
    ASSERT_TRUE(graph);
    EXPECT_NE(graph->outputs()[0]->type(), graph->outputs()[1]->type());
    EXPECT_NE(graph->outputs()[2]->type(), graph->outputs()[3]->type());
    EXPECT_EQ(graph->outputs()[2]->type().tensor().shape[1], symbol("B"));
}

TEST(RunTimeSizes, AreNoneOfAnInputs) {
    auto graph = graph_of("graph g(x: f32[z.d0,z.d1], s: i64[2]) -> (z) {\n  %z = expand(x, s)\n  return %z\n}");
    ASSERT_TRUE(graph);
    EXPECT_NE(graph->outputs()[0]->type(), graph->inputs()[0]->type());
    ASSERT_TRUE(graph->infer_again().ok());
    EXPECT_NE(graph->outputs()[0]->type(), graph->inputs()[0]->type());
}

TEST(RunTimeSizes, AreNotRenamedToAnother) {
    Graph graph("g");
    Value* x = graph.add_input("x", Type(DType::f32, Shape{symbol("e.d0")}));
    Value* s = graph.add_input("s", Type(DType::i64, Shape{1}));
    Result<Node*> node = graph.add({.op = find_op("expand"), .inputs = {x, s}, .outputs = 1});
    ASSERT_TRUE(node.ok());
    Value* e = (*node)->output(0);
    graph.rename(*e, "e");
    graph.add_output(e);
    renumber_names(graph);
    EXPECT_NE(e->type(), x->type());
}

}  // namespace
}  // namespace tessera::run_time_sizes_test
