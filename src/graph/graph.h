// The tensor graph: what a model computes. Nodes in static single assignment form use values; a value is a graph input, a
// constant, or an output of one node. A nested graph (an attribute of control flow) may use values of the graphs around
// it. Nodes are kept in an order in which every value is defined before it is used (verify.h lists the invariants).
// Nothing here has an effect or aliases: a value never changes, and a node can be dropped when nobody uses its outputs.
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
    Graph* graph;  // where the use stands, which may be nested in the value's graph
    Node* node;    // null: an output of that graph
    size_t index;  // which input, or which output
    bool operator==(const Use&) const = default;
};

class Value {
   public:
    enum class Kind { Input, Constant, Result };
    Kind kind() const { return kind_; }
    bool is_constant() const { return kind_ == Kind::Constant; }
    const Type& type() const { return type_; }
    const std::string& name() const { return name_; }  // unique in its graph and the graphs around it; never empty
    Graph& graph() const { return *graph_; }
    Node* node() const { return node_; }               // of a result
    size_t index() const { return index_; }            // its place among the node's outputs, or the graph's inputs
    const std::vector<Use>& uses() const { return uses_; }  // also by nodes of nested graphs

    // A constant's elements; an input's default where it has one.
    const std::optional<Tensor>& tensor() const { return tensor_; }
    // Integer contents as expressions, where inference found them (shape arithmetic).
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
    const std::string& name() const { return name_; }  // as the model gave it; may be empty
    const std::vector<Value*>& inputs() const { return inputs_; }  // null where an optional input is not given
    Value* input(size_t i) const { return i < inputs_.size() ? inputs_[i] : nullptr; }
    size_t output_count() const { return outputs_.size(); }
    Value* output(size_t i = 0) const { return outputs_[i].get(); }
    bool output_given(size_t i) const { return i < given_.size() && given_[i]; }  // an ONNX output with an empty name is not
    const AttrMap& attrs() const { return attrs_; }
    AttrMap& attrs() { return attrs_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    std::map<std::string, std::string>& metadata() { return metadata_; }
    Graph& graph() const { return *graph_; }
    std::string where() const;  // model.onnx: node "conv1" (Conv)
    OpView view() const;        // with the inputs' types, constants and contents, and the outputs' types

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

// What a model says of itself beyond its graph; kept so that it can be written back.
struct ModelInfo {
    std::string source;          // the file it came from, for messages
    std::string producer_name, producer_version, domain, doc_string;
    int64_t model_version = 0, ir_version = 0;
    int opset = 0;               // of the default domain; 0: the newest
    std::map<std::string, int> domains;  // other domains the model imports
    std::map<std::string, std::string> metadata;
    bool operator==(const ModelInfo&) const = default;
};

// Everything needed to add a node.
struct NodeSpec {
    const OpDef* op;
    std::vector<Value*> inputs;
    AttrMap attrs = {};
    size_t outputs = 1;
    std::string name = {};
    std::vector<std::string> output_names = {};  // empty or missing ones get a fresh name
    std::vector<bool> given = {};                // all, if empty
    std::map<std::string, std::string> metadata = {};
};

class Graph {
   public:
    explicit Graph(std::string name = "main", Graph* outer = nullptr) : name_(std::move(name)), outer_(outer) {}
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    const std::string& name() const { return name_; }
    void set_name(std::string name) { name_ = std::move(name); }
    Graph* outer() const { return outer_; }  // the graph around this one
    Graph& outermost();
    ModelInfo& info() { return info_; }      // of the outermost graph
    const ModelInfo& info() const { return info_; }
    std::string doc_string;
    std::map<std::string, std::string> metadata;

    // Building. Names are made unique by a suffix; `constant` returns the constant that is already there if it has the
    // same contents (and the same name, or no name is asked for).
    Value* add_input(std::string name, Type type, std::optional<Tensor> fallback = {});
    Value* constant(Tensor tensor, std::string name = {});
    Result<Node*> add(NodeSpec spec);  // checks the signature, infers the types, appends
    // A nested graph to be put into an attribute of a node of this one.
    GraphPtr nested(std::string name);

    // Reading.
    const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
    const std::vector<std::unique_ptr<Value>>& inputs() const { return inputs_; }
    const std::vector<std::unique_ptr<Value>>& constants() const { return constants_; }
    const std::vector<Value*>& outputs() const { return outputs_; }
    const std::vector<std::string>& output_names() const { return output_names_; }
    Value* find_value(std::string_view name) const;  // in this graph, then the ones around it
    bool name_taken(std::string_view name) const;

    // Outputs have names of their own: the model's, even where two are the same value or one is an input.
    void add_output(Value* value, std::string name = {});
    void set_output(size_t i, Value* value);

    // Changing.
    void set_input(Node& node, size_t i, Value* value);  // null drops an optional input
    void replace_uses(Value* from, Value* to);           // also as an output, also in nested graphs
    void erase(Node& node);                              // nobody uses its outputs
    void disconnect(Node& node);                         // it uses nothing any more; the next erase_unused takes it
    size_t erase_unused();                               // nodes and constants that nobody uses; how many
    void rename(Value& value, std::string name);
    // Takes a constant's elements from other memory, or lets go of them (a view of nothing, of the same type) where nobody
    // will ask for them again. New constants are not shared with it from then on.
    void move_constant(const Value& value, Tensor tensor);
    void sort();                                         // definitions before uses again, stable
    void sort_canonically();  // in an order that follows from the structure alone, nested graphs and constants too
    Status infer_again();                                // all types anew, after inputs changed

    size_t node_count() const;  // also in nested graphs
    std::unique_ptr<Graph> clone() const;

   private:
    std::string unique_name(std::string wanted);
    void claim(Value* v);
    void copy_into(Graph& to, std::unordered_map<const Value*, Value*>& map) const;
    void add_use(Value* v, Use use);
    void drop_use(Value* v, Use use);
    void drop_content(const Value& constant);  // it is not found by its elements any more

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

// The same structure, ops, attributes, constants, names and types.
bool identical(const Graph& a, const Graph& b, std::string* difference = nullptr);

}  // namespace tessera
