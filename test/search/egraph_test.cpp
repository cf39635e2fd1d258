// The e-graph: congruence, matching over classes, chains of siblings, what is taken out, and that it computes the same.
#include "search/egraph.h"

#include <gtest/gtest.h>

#include "graph/text/parse.h"
#include "graph/text/print.h"
#include "search/ematch.h"
#include "search/extract.h"
#include "search/merge_sums.h"
#include "search/search.h"

namespace tessera::egraph_test {
namespace {

std::unique_ptr<Graph> graph_of(const std::string& text) {
    auto g = parse(text);
    EXPECT_TRUE(g.ok()) << (g.ok() ? "" : g.error().to_string());
    return std::move(*g);
}

TEST(EGraph, CongruentNodesAreOne) {
    EGraph e(graph_of(R"(graph g(x: f32[4], y: f32[4]) -> (a, b) {
  %a = relu(x)
  %b = relu(y)
  return %a, %b
})"));
    Graph& g = e.graph();
    Value *x = g.inputs()[0].get(), *y = g.inputs()[1].get();
    EXPECT_NE(e.class_of(*g.outputs()[0]), e.class_of(*g.outputs()[1]));
    EXPECT_TRUE(e.merge(*x, *y));
    e.rebuild();
    EXPECT_EQ(e.class_of(*g.outputs()[0]), e.class_of(*g.outputs()[1]));
    EXPECT_EQ(e.node_count(), 1u);
}

TEST(EGraph, SumsInAnotherOrderAreOne) {
    auto made = [] {
        return EGraph(graph_of(R"(graph g(x: f32[4], y: f32[1], z: f32[4]) -> (a, b, c) {
  %p = add(x, y)
  %a = add(%p, z)
  %q = add(z, x)
  %b = add(y, %q)
  %c = add(%p, x)
  return %a, %b, %c
})"));
    };
    EGraph e = made();
    EXPECT_EQ(merge_sums(e, true), 1u);
    Graph& g = e.graph();
    EXPECT_EQ(e.class_of(*g.outputs()[0]), e.class_of(*g.outputs()[1]));
    EXPECT_NE(e.class_of(*g.outputs()[0]), e.class_of(*g.outputs()[2]));
    EGraph strict = made();
    EXPECT_EQ(merge_sums(strict, false), 0u);
}

}  // namespace
}  // namespace tessera::egraph_test
