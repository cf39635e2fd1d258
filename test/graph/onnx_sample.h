// ONNX structs in few words, for the tests of import and export.
#pragma once

#include <gtest/gtest.h>

#include "graph/onnx/from_onnx.h"
#include "graph/onnx/to_onnx.h"
#include "graph/onnx/values.h"

namespace tessera::test {

inline onnx::ValueInfo declared(std::string name, Type type) { return {std::move(name), type_to_onnx(type), {}, {}}; }
inline Type f32(Shape shape) { return Type(DType::f32, std::move(shape)); }

inline onnx::Node op(std::string type, std::vector<std::string> inputs, std::vector<std::string> outputs,
                     std::vector<onnx::Attribute> attributes = {}, std::string name = {}) {
    onnx::Node node;
    node.op_type = std::move(type);
    node.inputs = std::move(inputs);
    node.outputs = std::move(outputs);
    node.attributes = std::move(attributes);
    node.name = std::move(name);
    return node;
}

inline onnx::Attribute attribute(std::string name, onnx::AttributeType type) {
    onnx::Attribute a;
    a.name = std::move(name);
    a.type = type;
    return a;
}
inline onnx::Attribute int_value(std::string name, int64_t i) {
    onnx::Attribute a = attribute(std::move(name), onnx::AttributeType::Int);
    a.i = i;
    return a;
}
inline onnx::Attribute float_value(std::string name, float f) {
    onnx::Attribute a = attribute(std::move(name), onnx::AttributeType::Float);
    a.f = f;
    return a;
}
inline onnx::Attribute graph_value(std::string name, onnx::Graph g) {
    onnx::Attribute a = attribute(std::move(name), onnx::AttributeType::Graph);
    a.g = std::move(g);
    return a;
}
inline onnx::Attribute caller_value(std::string name, std::string of, onnx::AttributeType type) {
    onnx::Attribute a = attribute(std::move(name), type);
    a.ref_attr_name = std::move(of);
    return a;
}

inline onnx::Graph body(std::vector<onnx::ValueInfo> inputs, std::vector<onnx::Node> nodes,
                        std::vector<onnx::ValueInfo> outputs) {
    onnx::Graph g;
    g.name = "g";
    g.inputs = std::move(inputs);
    g.nodes = std::move(nodes);
    g.outputs = std::move(outputs);
    return g;
}

inline onnx::Model model(onnx::Graph graph, int64_t opset = 21) {
    onnx::Model m;
    m.ir_version = 10;
    m.opset_import = {{"", opset}};
    m.graph = std::move(graph);
    return m;
}

inline onnx::Function function(std::string name, std::vector<std::string> inputs, std::vector<std::string> outputs,
                               std::vector<onnx::Node> nodes) {
    onnx::Function f;
    f.domain = "mine";
    f.name = std::move(name);
    f.inputs = std::move(inputs);
    f.outputs = std::move(outputs);
    f.nodes = std::move(nodes);
    f.opset_import = {{"", 21}, {"mine", 1}};
    return f;
}
inline onnx::Node call(std::string name, std::vector<std::string> inputs, std::vector<std::string> outputs,
                       std::vector<onnx::Attribute> attributes = {}) {
    onnx::Node node = op(std::move(name), std::move(inputs), std::move(outputs), std::move(attributes));
    node.domain = "mine";
    return node;
}

inline std::unique_ptr<Graph> import_or_fail(const onnx::Model& m) {
    auto graph = from_onnx(m);
    if (graph.ok()) return std::move(*graph);
    ADD_FAILURE() << graph.error().to_string();
    return nullptr;
}
inline Error import_error(const onnx::Model& m, const FromOnnxOptions& options = {}) {
    auto graph = from_onnx(m, options);
    if (!graph.ok()) return graph.error();
    ADD_FAILURE() << "no error";
    return Error(Code::E0501, "none");
}

}  // namespace tessera::test
