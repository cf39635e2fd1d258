#include <gmock/gmock.h>

#include "graph/builder.h"
#include "onnx_sample.h"

namespace tessera::test::to_onnx_test {
namespace {

onnx::Model written(const Graph& g, const ToOnnxOptions& options = {}) {
    auto m = to_onnx(g, options);
    if (m.ok()) return std::move(*m);
    ADD_FAILURE() << m.error().to_string();
    return {};
}

void expect_comes_back(const Graph& g) {
    auto back = import_or_fail(written(g));
    ASSERT_TRUE(back);
    std::string difference;
    EXPECT_TRUE(identical(g, *back, &difference)) << difference;
}

TEST(ToOnnx, WritesTheModelsOwnOpset) {
    onnx::Attribute axes = attribute("axes", onnx::AttributeType::Ints);
    axes.ints = {0};
    auto g = import_or_fail(model(
        body({declared("x", f32({1, 2}))}, {op("Squeeze", {"x"}, {"y"}, {axes}, "s")}, {declared("y", f32({2}))}), 11));
    ASSERT_TRUE(g);
    onnx::Model m = written(*g);
    EXPECT_EQ(m.opset_import[0].version, 11);
    EXPECT_EQ(m.ir_version, 10);  // as it was
    ASSERT_EQ(m.graph.nodes.size(), 1u);
    EXPECT_EQ(m.graph.nodes[0].attributes[0].ints, std::vector<int64_t>{0});
    EXPECT_TRUE(m.graph.initializers.empty());
    // Asked for a newer one, the axes are an input.
    m = written(*g, {.opset = 13});
    EXPECT_EQ(m.graph.nodes[0].inputs.size(), 2u);
    EXPECT_EQ(m.graph.initializers.size(), 1u);
    expect_comes_back(*g);
}

TEST(ToOnnx, TakesTheNextOpsetThatHasEveryForm) {
    Graph g("g");
    g.info().opset = 12;
    Builder b(g);
    Value* x = g.add_input("x", f32({2}));
    Value* y = b.op("gelu", {x});
    ASSERT_TRUE(b.status().ok());
    g.add_output(y, "y");
    EXPECT_EQ(written(g).opset_import[0].version, 20);
    auto refused = to_onnx(g, {.opset = 12});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::E0214);
}

TEST(ToOnnx, OutputsKeepTheirNames) {
    Graph g("g");
    Builder b(g);
    Value* x = g.add_input("x", f32({2}));
    Value* c = g.constant(Tensor::of<float>({2}, {1, 2}), "c");
    Value* y = b.add(x, c);
    ASSERT_TRUE(b.status().ok());
    g.rename(*y, "y");
    g.add_output(x, "x");   // an input
    g.add_output(x, "x2");  // again, by another name
    g.add_output(c, "c");   // a constant
    g.add_output(c, "c2");
    g.add_output(y, "y");
    g.add_output(y, "again");
    onnx::Model m = written(g);
    std::vector<std::string> names;
    for (const auto& v : m.graph.outputs) names.push_back(v.name);
    EXPECT_EQ(names, (std::vector<std::string>{"x", "x2", "c", "c2", "y", "again"}));
    expect_comes_back(g);
}

TEST(ToOnnx, NestedGraphsMayReturnWhatIsAroundThem) {
    auto cond = declared("c", Type(DType::boolean, Shape{})), x = declared("x", f32({2}));
    onnx::Graph same = body({}, {}, {{"x", {}, {}, {}}});
    onnx::Graph other = body({}, {op("Neg", {"x"}, {"n"})}, {{"n", {}, {}, {}}});
    auto g = import_or_fail(model(
        body({cond, x}, {op("If", {"c"}, {"y"}, {graph_value("then_branch", same), graph_value("else_branch", other)})},
             {declared("y", f32({2}))})));
    ASSERT_TRUE(g);
    expect_comes_back(*g);
}

TEST(ToOnnx, ConstantsAreNotCopied) {
    Graph g("g");
    Builder b(g);
    Tensor big = *Tensor::zeros(DType::f32, {1000});
    Value* y = b.add(g.add_input("x", f32({1000})), g.constant(big, "w"));
    ASSERT_TRUE(b.status().ok());
    g.add_output(y, "y");
    onnx::Model m = written(g);
    ASSERT_EQ(m.graph.initializers.size(), 1u);
    EXPECT_EQ(static_cast<const void*>(m.graph.initializers[0].raw_data.data()), big.data());
}

TEST(ToOnnx, DefaultsAndSymbolsComeBack) {
    Graph g("g");
    g.info().opset = 21;
    Builder b(g);
    Value* x = g.add_input("x", f32({symbol("N"), symbol("odd name!")}));
    Value* k = g.add_input("k", f32({1}), Tensor::of<float>({1}, {0.5f}));
    Value* y = b.concat({b.mul(x, k), x}, 0);
    ASSERT_TRUE(b.status().ok());
    g.add_output(y, "y");
    expect_comes_back(g);
}

}  // namespace
}  // namespace tessera::test::to_onnx_test
