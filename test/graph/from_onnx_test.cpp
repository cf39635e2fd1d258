#include <gmock/gmock.h>

#include "graph/evaluate/evaluate.h"
#include "graph/onnx/to_onnx.h"
#include "graph/verify.h"
#include "onnx/tensor_data.h"
#include "onnx_sample.h"

namespace tessera::test::from_onnx_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

onnx::Tensor floats(std::string name, std::vector<float> values) {
    return tensor_to_onnx(Tensor::of<float>({int64_t(values.size())}, values), std::move(name));
}

TEST(FromOnnx, KeepsNamesTypesAndInfo) {
    onnx::Model m = model(body({declared("x", f32({symbol("N"), 3}))}, {op("Relu", {"x"}, {"y"}, {}, "act")},
                               {declared("y", f32({symbol("N"), 3}))}));
    m.producer_name = "me";
    m.doc_string = "about";
    m.metadata_props = {{"k", "v"}};
    m.graph.nodes[0].doc_string = "why";
    m.graph.nodes[0].metadata_props = {{"a", "b"}};
    auto g = import_or_fail(m);
    ASSERT_TRUE(g);
    EXPECT_EQ(g->nodes()[0]->name(), "act");
    EXPECT_EQ(to_string(g->outputs()[0]->type()), "f32[N,3]");
    EXPECT_EQ(g->output_names()[0], "y");
    EXPECT_EQ(g->info().producer_name, "me");
    EXPECT_EQ(g->info().opset, 21);
    EXPECT_EQ(g->info().metadata.at("k"), "v");
    EXPECT_EQ(g->nodes()[0]->metadata().at("a"), "b");
    EXPECT_EQ(g->nodes()[0]->metadata().at("doc_string"), "why");
    EXPECT_THAT(violations(*g), testing::IsEmpty());
}

TEST(FromOnnx, HintsAreMetadataThereAndAttributesHere) {
    onnx::Model m =
        model(body({declared("x", f32({1, 2, 8, 8})), declared("w", f32({2, 2, 3, 3}))},
                   {op("Conv", {"x", "w"}, {"a"}), op("Conv", {"a", "w"}, {"y"})}, {declared("y", f32({1, 2, 4, 4}))}));
    m.graph.nodes[0].metadata_props = {{"tessera.tiles", "6,4"}, {"a", "b"}};
    m.graph.nodes[1].metadata_props = {{"tessera.tiles", "6,x"}};  // not one of ours
    auto g = import_or_fail(m);
    ASSERT_TRUE(g);
    const Node &first = *g->nodes()[0], &second = *g->nodes()[1];
    EXPECT_EQ(first.attrs().at("tiles"), Attr(std::vector<int64_t>{6, 4}));
    EXPECT_EQ(first.metadata().size(), 1u);
    EXPECT_FALSE(second.attrs().contains("tiles"));
    EXPECT_EQ(second.metadata().at("tessera.tiles"), "6,x");
    auto back = to_onnx(*g);
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    const onnx::Node& written = back->graph.nodes[0];
    ASSERT_EQ(written.metadata_props.size(), 2u);
    EXPECT_EQ(written.metadata_props[0].key, "tessera.tiles");
    EXPECT_EQ(written.metadata_props[0].value, "6,4");
    for (const onnx::Attribute& a : written.attributes) EXPECT_NE(a.name, "tiles");
}

TEST(FromOnnx, SortsNodesAndNamesACycle) {
    auto x = declared("x", f32({2})), y = declared("y", f32({2}));
    auto g = import_or_fail(model(body({x}, {op("Neg", {"t"}, {"y"}), op("Abs", {"x"}, {"t"})}, {y})));
    ASSERT_TRUE(g);
    EXPECT_EQ(g->nodes()[0]->op().name, "abs");

    Error e = import_error(model(body({x},
                                      {op("Add", {"x", "b"}, {"a"}, {}, "one"), op("Neg", {"a"}, {"b"}, {}, "two"),
                                       op("Neg", {"b"}, {"y"}, {}, "three")},
                                      {y})));
    EXPECT_EQ(e.code(), Code::E0205);
    EXPECT_THAT(e.message(), AllOf(HasSubstr("one"), HasSubstr("two"), testing::Not(HasSubstr("three"))));
}

TEST(FromOnnx, SaysWhatIsUnknownMissingOrThereTwice) {
    auto x = declared("input", f32({2})), y = declared("y", f32({2}));
    Error e = import_error(model(body({x}, {op("Reluu", {"input"}, {"y"}, {}, "n1")}, {y})));
    EXPECT_EQ(e.code(), Code::E0201);
    EXPECT_THAT(e.to_string(), AllOf(HasSubstr("Reluu"), HasSubstr("n1"), HasSubstr("ai.onnx"), HasSubstr("opset 21"),
                                     HasSubstr("did you mean Relu?")));
    onnx::Node other = op("Relu", {"input"}, {"y"});
    other.domain = "com.example";
    EXPECT_EQ(import_error(model(body({x}, {other}, {y}))).code(), Code::E0201);

    e = import_error(model(body({x}, {op("Relu", {"inptu"}, {"y"})}, {y})));
    EXPECT_EQ(e.code(), Code::E0203);
    EXPECT_THAT(e.hint(), HasSubstr("\"input\""));
    EXPECT_EQ(import_error(model(body({x}, {}, {y}))).code(), Code::E0203);
    EXPECT_EQ(import_error(model(body({x}, {op("Relu", {"input"}, {"y"}), op("Abs", {"input"}, {"y"})}, {y}))).code(),
              Code::E0204);
    EXPECT_EQ(import_error(model(body({x, x}, {op("Relu", {"input"}, {"y"})}, {y}))).code(), Code::E0204);
    EXPECT_EQ(import_error(model(body({x}, {op("Relu", {"input"}, {"input"})}, {x}))).code(), Code::E0204);
    EXPECT_EQ(import_error(model(body({x}, {op("Relu", {"input"}, {"y"})}, {y}), 99)).code(), Code::E0202);
}

TEST(FromOnnx, HoldsDeclaredOutputsAgainstInference) {
    auto x = declared("x", f32({2, 3}));
    const onnx::Model wrong = model(body({x}, {op("Relu", {"x"}, {"y"})}, {declared("y", f32({2, 4, 1}))}));
    Error e = import_error(wrong, {.strict = true});
    EXPECT_EQ(e.code(), Code::E0210);
    EXPECT_THAT(e.message(), AllOf(HasSubstr("f32[2,4,1]"), HasSubstr("f32[2,3]")));
    std::vector<Warning> warnings;
    auto inferred = from_onnx(wrong, {.warnings = &warnings});
    ASSERT_TRUE(inferred.ok());
    EXPECT_EQ((*inferred)->outputs()[0]->type(), f32({2, 3}));
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_EQ(warnings[0].code, Code::W0201);
    EXPECT_THAT(warnings[0].message, AllOf(HasSubstr("f32[2,4,1]"), HasSubstr("f32[2,3]")));
    // What is only known at run time, the declaration may know better; only a strict import relies on it.
    const onnx::Model found =
        model(body({x}, {op("NonZero", {"x"}, {"y"})}, {declared("y", Type(DType::i64, {2, symbol("K")}))}));
    auto g = from_onnx(found, {.strict = true});
    ASSERT_TRUE(g.ok());
    EXPECT_EQ(to_string((*g)->outputs()[0]->type()), "i64[2,K]");
    EXPECT_EQ(to_string(import_or_fail(found)->outputs()[0]->type()), "i64[2,y.d1]");
    // Where not even the rank is known, the declared one is taken, and a run may show another.
    bool relied = false;
    auto s = declared("s", Type(DType::i64, {symbol("R")})), y = declared("y", f32({symbol("A"), 3}));
    auto ranked = from_onnx(model(body({x, s}, {op("Reshape", {"x", "s"}, {"y"})}, {y})), {.declared = &relied});
    ASSERT_TRUE(ranked.ok());
    EXPECT_EQ((*ranked)->outputs()[0]->type(), f32({symbol("y.d0"), symbol("y.d1")}));
    EXPECT_TRUE(relied);
}

TEST(FromOnnx, NamesDimensions) {
    onnx::ValueInfo x = declared("x", f32({symbol("past"), symbol("now"), 4, 4}));
    (*x.type.shape)[2] = {};
    (*x.type.shape)[3] = {onnx::Dim::Kind::Param, 0, "past + now", ""};
    onnx::ValueInfo z = declared("z", f32({symbol("not-a-difference")}));
    auto g = import_or_fail(model(body({x, z}, {op("Relu", {"x"}, {"y"})}, {{"y", {}, {}, {}}})));
    ASSERT_TRUE(g);
    EXPECT_EQ(g->inputs()[0]->type(),
              f32({symbol("past"), symbol("now"), symbol("x.d2"), symbol("past") + symbol("now")}));
    EXPECT_EQ(g->inputs()[1]->type(), f32({symbol("not-a-difference")}));
}

TEST(FromOnnx, ReadsDimensionsAsExportersWriteThem) {
    onnx::ValueInfo x = declared("x", f32({symbol("height"), symbol("?"), symbol("?"), symbol("None")}));
    onnx::ValueInfo z = declared("z", f32({7, 7}));
    (*z.type.shape)[0] = {onnx::Dim::Kind::Param, 0, "floor(height/2 - 1/2) + 1", ""};
    (*z.type.shape)[1] = {onnx::Dim::Kind::Param, 0, "sqrt(height)", ""};
    auto g = import_or_fail(model(body({x, z}, {op("Relu", {"x"}, {"y"})}, {{"y", {}, {}, {}}})));
    ASSERT_TRUE(g);
    EXPECT_EQ(g->inputs()[0]->type(), f32({symbol("height"), symbol("x.d1"), symbol("x.d2"), symbol("x.d3")}));
    EXPECT_EQ(g->inputs()[1]->type(), f32({floor_div(symbol("height") - 1, 2) + 1, symbol("sqrt(height)")}));
}

TEST(FromOnnx, TakesSignalsWithoutTheirLastDimension) {
    onnx::Graph graph =
        body({declared("x", f32({2, 160}))}, {op("STFT", {"x", "step", "", "length"}, {"y"})}, {{"y", {}, {}, {}}});
    graph.initializers = {tensor_to_onnx(Tensor::scalar(int64_t{16}), "step"),
                          tensor_to_onnx(Tensor::scalar(int64_t{32}), "length")};
    std::vector<Warning> warnings;
    auto g = from_onnx(model(graph), {.warnings = &warnings});
    ASSERT_TRUE(g.ok()) << g.error().to_string();
    EXPECT_EQ((*g)->outputs()[0]->type(), f32({2, 9, 17, 2}));
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_EQ(warnings[0].code, Code::W0202);
    EXPECT_EQ(import_error(model(graph), {.strict = true}).code(), Code::E0210);
}

TEST(FromOnnx, TakesOperatorsThatAreNewerThanTheOpset) {
    const onnx::Model m =
        model(body({declared("x", f32({2}))}, {op("Gelu", {"x"}, {"y"})}, {declared("y", f32({2}))}), 13);
    std::vector<Warning> warnings;
    EXPECT_TRUE(from_onnx(m, {.warnings = &warnings}).ok());
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_EQ(warnings[0].code, Code::W0202);
    EXPECT_EQ(import_error(m, {.strict = true}).code(), Code::E0201);
}

TEST(FromOnnx, WritesOutOperatorsOfOtherDomains) {
    onnx::Node node = op("QuickGelu", {"x"}, {"y"}, {float_value("alpha", 2)}, "act");
    node.domain = "com.microsoft";
    onnx::Model m = model(body({declared("x", f32({2}))}, {node}, {declared("y", f32({2}))}));
    m.opset_import.push_back({"com.microsoft", 1});
    auto g = import_or_fail(m);
    ASSERT_TRUE(g);
    EXPECT_EQ(g->outputs()[0]->name(), "y");
    EXPECT_EQ(g->outputs()[0]->node()->op().name, "mul");
    m.graph.nodes[0].attributes.push_back(int_value("beta", 1));
    EXPECT_EQ(import_error(m).code(), Code::E0206);
    m.graph.nodes[0].attributes.clear();
    m.graph.nodes[0].inputs.clear();
    EXPECT_EQ(import_error(m).code(), Code::E0207);
}

TEST(FromOnnx, TakesEveryFormOfConstant) {
    onnx::Attribute value = attribute("value", onnx::AttributeType::Tensor);
    value.t = floats("", {1, 2});
    onnx::Attribute ints = attribute("value_ints", onnx::AttributeType::Ints);
    ints.ints = {3, 4};
    onnx::Attribute strings = attribute("value_strings", onnx::AttributeType::Strings);
    strings.strings = {"a", "b"};
    onnx::Attribute sparse = attribute("sparse_value", onnx::AttributeType::SparseTensor);
    sparse.sparse_tensor = onnx::SparseTensor{floats("", {7}), tensor_to_onnx(Tensor::ints({2}), ""), {4}};
    std::vector<onnx::Node> nodes = {op("Constant", {}, {"a"}, {value}), op("Constant", {}, {"b"}, {ints}),
                                     op("Constant", {}, {"c"}, {strings}), op("Constant", {}, {"d"}, {sparse}),
                                     op("Constant", {}, {"e"}, {float_value("value_float", 2.5f)})};
    std::vector<onnx::ValueInfo> outputs;
    for (const char* name : {"a", "b", "c", "d", "e"}) outputs.push_back({name, {}, {}, {}});
    auto g = import_or_fail(model(body({}, nodes, outputs)));
    ASSERT_TRUE(g);
    EXPECT_TRUE(g->nodes().empty());
    EXPECT_EQ(g->find_value("b")->tensor()->to_ints(), (std::vector<int64_t>{3, 4}));
    EXPECT_EQ(g->find_value("c")->tensor()->as_strings()[1], "b");
    EXPECT_EQ(g->find_value("d")->tensor()->real_at(2), 7);
    EXPECT_EQ(g->find_value("d")->tensor()->sizes(), Sizes{4});
    EXPECT_EQ(g->find_value("e")->tensor()->rank(), 0);
    EXPECT_EQ(import_error(model(body({}, {op("Constant", {}, {"a"})}, {outputs[0]}))).code(), Code::E0206);
}

TEST(FromOnnx, AnInitialiserThatIsAnInputIsItsDefault) {
    onnx::Graph graph = body({declared("x", f32({2})), declared("w", f32({2}))}, {op("Add", {"x", "w"}, {"y"})},
                             {declared("y", f32({2}))});
    graph.initializers = {floats("w", {1, 2})};
    onnx::Model m = model(graph);
    auto g = import_or_fail(m);
    ASSERT_TRUE(g);
    ASSERT_EQ(g->inputs().size(), 2u);
    EXPECT_TRUE(g->inputs()[1]->tensor());
    m.ir_version = 3;  // there it had to be listed, and was a constant
    g = import_or_fail(m);
    ASSERT_TRUE(g);
    EXPECT_EQ(g->inputs().size(), 1u);
    EXPECT_TRUE(g->find_value("w")->is_constant());
}

TEST(FromOnnx, NestedGraphsSeeAndShadowNames) {
    auto cond = declared("c", Type(DType::boolean, Shape{})), x = declared("x", f32({2}));
    // Both branches have a `t` of their own; the outer `t` comes later in the file.
    onnx::Graph then_branch = body({}, {op("Neg", {"x"}, {"t"})}, {{"t", {}, {}, {}}});
    onnx::Graph else_branch = body({}, {op("Abs", {"x"}, {"t"})}, {{"t", {}, {}, {}}});
    onnx::Model m = model(body(
        {cond, x},
        {op("If", {"c"}, {"i"}, {graph_value("then_branch", then_branch), graph_value("else_branch", else_branch)}),
         op("Exp", {"i"}, {"t"})},
        {declared("t", f32({2}))}));
    auto g = import_or_fail(m);
    ASSERT_TRUE(g);
    EXPECT_THAT(violations(*g), testing::IsEmpty());
    EXPECT_EQ(g->outputs()[0]->name(), "t");
    auto result = evaluate(*g, {{"c", Tensor::scalar(true)}, {"x", Tensor::of<float>({2}, {1, 2})}});
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    EXPECT_NEAR((*result)[0].tensor().real_at(1), std::exp(-2.0), 1e-6);
}

TEST(FromOnnx, InlinesFunctions) {
    // scaled(x; alpha = 2) = leaky(x, alpha) + x, where leaky is a function that passes its attribute on.
    onnx::Function leaky =
        function("leaky", {"v"}, {"r"},
                 {op("LeakyRelu", {"v"}, {"r"}, {caller_value("alpha", "slope", onnx::AttributeType::Float)})});
    leaky.attributes = {"slope"};
    onnx::Function scaled =
        function("scaled", {"a", "unused"}, {"sum", "same"},
                 {call("leaky", {"a"}, {"t"}, {caller_value("slope", "alpha", onnx::AttributeType::Float)}),
                  op("Add", {"t", "a"}, {"sum"}), op("Identity", {"a"}, {"same"})});
    scaled.attribute_protos = {float_value("alpha", 2)};
    onnx::Model m = model(body({declared("x", f32({1}))},
                               {call("scaled", {"x"}, {"y"}), call("scaled", {"x"}, {"z"}, {float_value("alpha", 3)})},
                               {declared("y", f32({1})), declared("z", f32({1}))}));
    m.functions = {scaled, leaky};
    m.opset_import.push_back({"mine", 1});
    auto g = import_or_fail(m);
    ASSERT_TRUE(g);
    EXPECT_THAT(violations(*g), testing::IsEmpty());
    EXPECT_EQ(g->outputs()[0]->name(), "y");
    auto result = evaluate(*g, {{"x", Tensor::of<float>({1}, {-1})}});
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    EXPECT_EQ((*result)[0].tensor().real_at(0), -3);
    EXPECT_EQ((*result)[1].tensor().real_at(0), -4);
}

TEST(FromOnnx, RefusesRecursionAndExplosions) {
    onnx::Model m = model(body({declared("x", f32({1}))}, {call("f0", {"x"}, {"y"})}, {declared("y", f32({1}))}));
    m.opset_import.push_back({"mine", 1});
    m.functions = {function("f0", {"a"}, {"b"}, {call("f1", {"a"}, {"b"})}),
                   function("f1", {"a"}, {"b"}, {call("f0", {"a"}, {"b"})})};
    EXPECT_EQ(import_error(m).code(), Code::E0215);

    m.functions.clear();
    for (int i = 0; i < 40; ++i) {
        std::string next = i == 39 ? "" : "f" + std::to_string(i + 1);
        auto step = [&](const char* from, const char* to) {
            return next.empty() ? op("Neg", {from}, {to}) : call(next, {from}, {to});
        };
        m.functions.push_back(function("f" + std::to_string(i), {"a"}, {"b"}, {step("a", "t"), step("t", "b")}));
    }
    EXPECT_EQ(import_error(m, {.max_inlined_nodes = 5000}).code(), Code::E0108);

    onnx::Graph inner = body({}, {op("Neg", {"x"}, {"t"})}, {{"t", {}, {}, {}}});
    for (int i = 0; i < 80; ++i)
        inner = body({},
                     {op("If", {"c"}, {"t"},
                         {graph_value("then_branch", inner),
                          graph_value("else_branch", body({}, {op("Abs", {"x"}, {"t"})}, {{"t", {}, {}, {}}}))})},
                     {{"t", {}, {}, {}}});
    inner.inputs = {declared("c", Type(DType::boolean, Shape{})), declared("x", f32({1}))};
    EXPECT_EQ(import_error(model(inner)).code(), Code::E0109);
}

TEST(FromOnnx, GeneratedNamesGiveWayToTheModels) {
    // Before opset 13 the axes of Squeeze were an attribute: the constant made of them must not take v0 from the model.
    onnx::Attribute axes = attribute("axes", onnx::AttributeType::Ints);
    axes.ints = {0};
    auto g = import_or_fail(
        model(body({declared("x", f32({1, 2}))},
                   {op("Squeeze", {"x"}, {"s"}, {axes}), op("Neg", {"s"}, {"v0"}), op("Neg", {"v0"}, {"v1"})},
                   {declared("v1", f32({2}))}),
              11));
    ASSERT_TRUE(g);
    EXPECT_EQ(g->nodes()[1]->output()->name(), "v0");
    EXPECT_EQ(g->nodes()[2]->output()->name(), "v1");
    EXPECT_THAT(violations(*g), testing::IsEmpty());
}

}  // namespace
}  // namespace tessera::test::from_onnx_test
