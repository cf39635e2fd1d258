// The tensor graph, an SSA-form IR of models. Nodes use values; a value is a graph input, a constant, or an output of
// one node. A nested graph (an attribute of a control-flow op) may use values of the enclosing graphs. Nodes are stored
// in an order in which every value is defined before it is used (verify.h lists the invariants). There are no side
// effects and no aliasing: values are immutable, and a node whose outputs are unused can be erased.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/attr.h"
#include "graph/op_def.h"
#include "graph/tensor.h"
#include "graph/type.h"

namespace tessera {

class Node;

struct Use {
    Graph* graph;  // the graph that contains the use; it may be nested in the value's graph
    Node* node;    // null: the use is an output of that graph
    size_t index;  // number of the input or output
    bool operator==(const Use&) const = default;
};

class Value {
   public:
    enum class Kind { Input, Constant, Result };
    Kind kind() const { return kind_; }
    bool is_constant() const { return kind_ == Kind::Constant; }
    const Type& type() const { return type_; }
    const std::string& name() const { return name_; }  // unique in its graph and the enclosing graphs; never empty
    Graph& graph() const { return *graph_; }
    Node* node() const { return node_; }               // that defines a result
    size_t index() const { return index_; }            // among the node's outputs, or the graph's inputs
    const std::vector<Use>& uses() const { return uses_; }  // including those in nested graphs

    // The elements of a constant, or the default of an input, if any.
    const std::optional<Tensor>& tensor() const { return tensor_; }
    // Integer contents as symbolic expressions, if inference found them (shape arithmetic).
    const std::optional<std::vector<Expr>>& contents() const { return contents_; }

    void set_type(Type type) { type_ = std::move(type); }
    void set_contents(std::optional<std::vector<Expr>> c) { contents_ = std::move(c); }

   private:
    friend class Graph;
    friend class Node;
    Kind kind_ = Kind::Result;
    Type type_;
    std::string name_;
    Graph* graph_ = nullptr;
    Node* node_ = nullptr;
    size_t index_ = 0;
    std::vector<Use> uses_;
    std::optional<Tensor> tensor_;
    std::optional<std::vector<Expr>> contents_;
};

class Node {
   public:
    const OpDef& op() const { return *op_; }
    bool is(Trait t) const { return op_->has(t); }
    const std::string& name() const { return name_; }  // the name in the model; may be empty
    const std::vector<Value*>& inputs() const { return inputs_; }  // null for absent optional inputs
    Value* input(size_t i) const { return i < inputs_.size() ? inputs_[i] : nullptr; }
    size_t output_count() const { return outputs_.size(); }
    Value* output(size_t i = 0) const { return outputs_[i].get(); }
    bool output_given(size_t i) const { return i < given_.size() && given_[i]; }  // an ONNX output with an empty name is not
    const AttrMap& attrs() const { return attrs_; }
    AttrMap& attrs() { return attrs_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    std::map<std::string, std::string>& metadata() { return metadata_; }
    Graph& graph() const { return *graph_; }
    std::string where() const;  // its location for messages: model.onnx: node "conv1" (Conv)
    OpView view() const;        // with types, constants and contents of the inputs, and types of the outputs

   private:
    friend class Graph;
    const OpDef* op_ = nullptr;
    std::string name_;
    Graph* graph_ = nullptr;
    std::vector<Value*> inputs_;
    std::vector<std::unique_ptr<Value>> outputs_;
    std::vector<bool> given_;
    AttrMap attrs_;
    std::map<std::string, std::string> metadata_;
};

// Metadata of a model, preserved for writing it back.
struct ModelInfo {
    std::string source;          // the file that it was read from, for messages
    std::string producer_name, producer_version, domain, doc_string;
    int64_t model_version = 0, ir_version = 0;
    int opset = 0;               // of the default domain; 0: the newest
    std::map<std::string, int> domains;  // other domains the model imports
    std::map<std::string, std::string> metadata;
    bool operator==(const ModelInfo&) const = default;
};

// The arguments of Graph::add.
struct NodeSpec {
    const OpDef* op;
    std::vector<Value*> inputs;
    AttrMap attrs = {};
    size_t outputs = 1;
    std::string name = {};
    std::vector<std::string> output_names = {};  // empty and missing names are generated
    std::vector<bool> given = {};                // empty: all outputs
    std::map<std::string, std::string> metadata = {};
};

class Graph {
   public:
    explicit Graph(std::string name = "main", Graph* outer = nullptr) : name_(std::move(name)), outer_(outer) {}
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    const std::string& name() const { return name_; }
    void set_name(std::string name) { name_ = std::move(name); }
    Graph* outer() const { return outer_; }  // the enclosing graph
    Graph& outermost();
    ModelInfo& info() { return info_; }      // of the outermost graph
    const ModelInfo& info() const { return info_; }
    std::string doc_string;
    std::map<std::string, std::string> metadata;

    // Building. Names are made unique with a suffix. `constant` returns an existing constant with the same contents and
    // name (any name if none is given).
    Value* add_input(std::string name, Type type, std::optional<Tensor> fallback = {});
    Value* constant(Tensor tensor, std::string name = {});
    Result<Node*> add(NodeSpec spec);  // checks the signature, infers the types, appends the node
    // A new nested graph, for an attribute of a node of this graph.
    GraphPtr nested(std::string name);

    // Reading.
    const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
    const std::vector<std::unique_ptr<Value>>& inputs() const { return inputs_; }
    const std::vector<std::unique_ptr<Value>>& constants() const { return constants_; }
    const std::vector<Value*>& outputs() const { return outputs_; }
    const std::vector<std::string>& output_names() const { return output_names_; }
    Value* find_value(std::string_view name) const;  // in this graph, then in the enclosing ones
    bool name_taken(std::string_view name) const;

    // Outputs have separate names: those of the model, even if two outputs are the same value or one is an input.
    void add_output(Value* value, std::string name = {});
    void set_output(size_t i, Value* value);

    // Changing.
    void set_input(Node& node, size_t i, Value* value);  // null removes an optional input
    void replace_uses(Value* from, Value* to);           // including graph outputs and uses in nested graphs
    void erase(Node& node);                              // its outputs must be unused
    void disconnect(Node& node);                         // removes its inputs; the next erase_unused erases it
    size_t erase_unused();                               // erases unused nodes and constants; returns their number
    void rename(Value& value, std::string name);
    // Replaces the memory of a constant's elements by another copy of them, or releases the elements (a null view of
    // the same type) if they are not needed any more. The constant is then no longer reused by constant().
    void move_constant(const Value& value, Tensor tensor);
    void sort();                                         // restores definitions before uses; stable
    void sort_canonically();  // into an order determined by the structure alone, with nested graphs and constants
    Status infer_again();                                // recomputes all types after inputs changed

    size_t node_count() const;  // including nested graphs
    std::unique_ptr<Graph> clone() const;

   private:
    std::string unique_name(std::string wanted);
    void claim(Value* v);
    void copy_into(Graph& to, std::unordered_map<const Value*, Value*>& map) const;
    void add_use(Value* v, Use use);
    void drop_use(Value* v, Use use);
    void drop_content(const Value& constant);  // removes it from by_content_

    std::string name_;
    Graph* outer_;
    ModelInfo info_;
    std::vector<std::unique_ptr<Value>> inputs_, constants_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<Value*> outputs_;
    std::vector<std::string> output_names_;
    std::unordered_map<std::string, Value*> by_name_;
    std::unordered_multimap<uint64_t, Value*> by_content_;
    uint64_t next_name_ = 0;
};

// Whether structure, ops, attributes, constants, names and types are equal.
bool identical(const Graph& a, const Graph& b, std::string* difference = nullptr);

}  // namespace tessera
