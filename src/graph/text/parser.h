// The work of parse: recursive descent over the text, building the graph as it goes.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/graph.h"
#include "graph/text/parse.h"
#include "graph/text/scanner.h"
#include "onnx/data_source.h"

namespace tessera {

class TextParser {
  public:
    TextParser(std::string_view text, const ParseOptions& options,
               const std::map<std::string, Tensor>* constants = nullptr);
    Result<std::unique_ptr<Graph>> run();

  private:
    // A value as written: numbers (also true, false, complex pairs), strings, or a reference to bytes elsewhere.
    struct Literal {
        enum class Kind { Numbers, Strings, Data, Weights } kind = Kind::Numbers;
        size_t at = 0;
        std::vector<std::string_view> numbers = {};
        std::vector<std::string> strings = {};
        Sizes sizes = {};       // by its brackets
        int64_t reference = 0;  // data(i), weights(offset)
        std::optional<DType> dtype = {};
        std::optional<Sizes> type_sizes = {};  // where a type stands behind it
    };
    struct Argument {
        size_t at = 0;
        Value* value = nullptr;
        std::optional<Literal> literal = {};
    };
    struct Call {
        size_t at = 0;
        const OpDef* op = nullptr;
        std::vector<Argument> arguments = {};
        AttrMap attrs = {};
    };

    // parse.cpp: the structure.
    Status find_data();
    Status parse_model(ModelInfo& info);
    Status parse_graph(Graph& graph);
    const Tensor* given_for(const Graph& graph, const std::string& name) const;  // null: none was given
    Status parse_inputs(Graph& graph);
    Status parse_statement(Graph& graph);
    Status parse_node(Graph& graph);
    // vjp(y, dy, x, w): what flows back from y to x and to w, where dy arrives at y.
    Status parse_vjp(Graph& graph, const std::vector<std::string>& names, size_t at);
    Status parse_return(Graph& graph, const std::optional<std::vector<std::string>>& names);
    Result<std::pair<std::string, std::string>> parse_entry();  // "key" = "value"
    Result<std::string> parse_name(std::string_view what);
    Status define(Graph& graph, const std::string& name, size_t at);
    Status check_type(Value& value, const Type& said, size_t at);

    // parse_value.cpp: what stands in a node.
    Result<Call> parse_call(Graph& graph);
    Result<Argument> parse_argument(Graph& graph);
    Result<Value*> parse_value(Graph& graph);
    Result<Node*> build(Graph& graph, Call call, std::vector<std::string> names, std::vector<bool> given,
                        std::string name, std::map<std::string, std::string> metadata);
    Result<Attr> parse_attr(Graph& graph, AttrKind kind);
    Result<Attr> attr_of(const Literal& literal, AttrKind kind);
    Result<Value*> look_up(Graph& graph, const std::string& name, size_t at);

    // parse_literal.cpp: types and values.
    Result<Type> parse_type();
    Result<Literal> parse_literal();
    Status parse_list(Literal& literal, size_t rank);
    Status parse_list_pair(Literal& literal, size_t place);  // (re,im)
    Result<Tensor> tensor_of(const Literal& literal, std::optional<DType> dtype, std::optional<Sizes> sizes);
    Result<Tensor> bytes_of(const Literal& literal, DType dtype, Sizes sizes);

    // Errors of the graph, at the place in the text.
    Error moved(Error error, size_t at) const;

    const ParseOptions& options_;
    const std::map<std::string, Tensor>* constants_;  // by the inputs that they take the place of; may be null
    TextScanner scan_;
    std::unordered_set<const Value*> named_;  // under the name they have in the text
    std::unordered_map<int64_t, size_t> data_;
    std::unordered_map<int64_t, std::shared_ptr<const std::string>> decoded_;
    std::string weights_;
    onnx::DataSource folder_;
    int depth_ = 0;
};

}  // namespace tessera
