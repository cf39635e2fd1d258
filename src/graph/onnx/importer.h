// The work of from_onnx: one pass over the model, graph by graph, with a scope of names for each.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/builder.h"
#include "graph/onnx/from_onnx.h"
#include "graph/onnx/values.h"

namespace tessera {

// Marks the Identity nodes that to_onnx adds where an output's value is defined elsewhere; importing takes them out
// again.
inline constexpr const char* kAliasMark = "tessera.alias";

inline std::string plain_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

class OnnxImporter {
  public:
    OnnxImporter(const onnx::Model& model, const FromOnnxOptions& options);
    Result<std::unique_ptr<Graph>> run();

  private:
    using Opsets = std::map<std::string, int>;
    using FunctionKey = std::tuple<std::string, std::string, std::string>;  // domain, name, overload

    struct Scope;
    // An attribute that a function was called with, and where the names in its graphs resolve.
    struct Bound {
        const onnx::Attribute* attribute;
        Scope* scope;
    };

    // The names of one ONNX graph or function body, and the graph its nodes go to.
    struct Scope {
        Graph* graph = nullptr;
        Scope* outer = nullptr;                          // where names not found here are looked up
        std::unordered_map<std::string, Value*> values;  // null: an input that the function's caller left out
        std::unordered_map<std::string, const onnx::ValueInfo*> declared = {};
        std::unordered_set<std::string> outputs = {};  // those whose declared types bind
        const Opsets* opsets = nullptr;
        std::string prefix = {};                                    // inside an inlined function
        std::unordered_map<std::string, std::string> renamed = {};  // its outputs, by their names at the caller
        const std::map<std::string, Bound>* bound = nullptr;        // its attributes; null outside functions
        int depth = 0;
    };

    // from_onnx.cpp: the model and its graphs.
    Status read_opsets(const std::vector<onnx::OpsetImport>& imports, Opsets& opsets, const std::string& of) const;
    Status index_functions();
    void read_info(ModelInfo& info) const;
    void collect_symbols();
    Dim dim_param(const std::string& param) const;
    Status import_graph(const onnx::Graph& graph, Scope& scope, const std::vector<Type>& input_hints);
    Status import_initializers(const onnx::Graph& graph, Scope& scope);
    Status import_inputs(const onnx::Graph& graph, Scope& scope, const std::vector<Type>& hints);
    Status import_nodes(const std::vector<onnx::Node>& nodes, Scope& scope);
    Result<GraphPtr> import_nested(const onnx::Graph& graph, Scope& lookup, const Scope& at, std::vector<Type> hints);

    // onnx_import_node.cpp: one node.
    Status import_node(const onnx::Node& node, Scope& scope);
    // The version of its domain that the node is read by.
    Result<int> opset_of(const onnx::Node& node, const std::string& domain, const Scope& scope);
    // The node's outputs are these; nodes of the graph from `before` on were made for it.
    Status define_made(const onnx::Node& node, const std::vector<Value*>& made, size_t before, Scope& scope);
    Status import_constant(const onnx::Node& node, Scope& scope);
    Status import_call(const onnx::Node& node, const onnx::Function& function, Scope& scope);
    Result<std::vector<Value*>> read_inputs(const onnx::Node& node, Scope& scope);
    Result<AttrMap> read_attrs(const onnx::Node& node, Scope& scope, const std::vector<Value*>& inputs);
    Result<Attr> read_attr(const onnx::Node& node, const onnx::Attribute& a, Scope& lookup, const Scope& at,
                           const std::vector<Value*>& inputs);
    // The attribute itself, or what the caller of the function gave for it; null where it gave nothing.
    Bound resolve(const onnx::Attribute& a, Scope& scope) const;
    Status check_declared(Value& value, const std::string& name, Scope& scope, const std::string& where);
    Status contradiction(Error error, Code warning);  // the error where the import is strict, else a warning
    Error unknown_op(const onnx::Node& node, const std::string& domain, const Scope& scope) const;

    // Names.
    Value** find(const std::string& name, Scope& scope) const;
    Status define(const std::string& name, Value* value, Scope& scope, const std::string& where);
    std::string free_name(const std::string& name, Scope& scope);  // ours for it, cleared of generated names
    std::string where(const onnx::Node& node, const Scope& scope) const;

    const onnx::Model& model_;
    const FromOnnxOptions& options_;
    onnx::DataSource data_;
    std::string source_;
    Opsets opsets_;
    std::map<FunctionKey, const onnx::Function*> functions_;
    std::vector<FunctionKey> calls_;           // being inlined
    std::unordered_set<std::string> symbols_;  // plain dimension names of the model's inputs
    size_t inlined_ = 0;
};

}  // namespace tessera
