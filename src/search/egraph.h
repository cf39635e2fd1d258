// An e-graph over the tensor graph: classes of values known to be equal. Every e-node is a node of one working graph
// whose inputs are its classes' representatives, so that inference, conditions and instantiation work on it as on any
// graph. All members of a class have one type. After rebuild(), equal nodes over equal classes are one (congruence).
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace tessera {

using ClassId = int;

class EGraph {
  public:
    explicit EGraph(std::unique_ptr<Graph> graph);

    Graph& graph() { return *graph_; }
    const Graph& graph() const { return *graph_; }

    ClassId class_of(const Value& value) const;  // of a value that add() has seen
    Value* representative(ClassId c) const { return classes_[size_t(c)].representative; }
    Value* representative(const Value& value) const { return representative(class_of(value)); }
    const std::vector<Value*>& members(ClassId c) const { return classes_[size_t(c)].members; }
    // Computed from constants alone: it costs nothing when the program runs.
    bool weight_only(ClassId c) const { return classes_[size_t(c)].weight_only; }
    size_t class_count() const { return live_classes_; }
    size_t node_count() const { return live_nodes_; }
    size_t class_bound() const { return classes_.size(); }                  // ids are below
    bool alive(const Node& node) const { return hashed_.contains(&node); }  // not replaced by an equal one
    Value* current(Value& value) const;  // that stands for it, where its node was replaced by an equal one
    bool is_class(ClassId c) const { return find(c) == c; }

    // Puts a node that was just appended to the graph among the classes: its inputs become representatives; where an
    // equal one is there already, the new one goes. The node that stays.
    Node* add(Node& node);
    ClassId add(Value& value);  // a constant, or a value that has its class

    // Says that two values are equal. False where their types differ, and nothing is done then.
    bool merge(Value& a, Value& b);
    // Makes congruence hold again.
    void rebuild();

    // Classes that a node needs, each as often as it is used: its inputs, and what graphs nested in it use.
    std::vector<ClassId> needs(const Node& node) const;

    // Whether `from` is computed from any of `targets`, by whatever members.
    bool depends(ClassId from, const std::vector<ClassId>& targets) const;

  private:
    struct Class {
        Value* representative = nullptr;
        std::vector<Value*> members;
        bool weight_only = false;
    };
    ClassId find(ClassId c) const;
    ClassId new_class(Value& value);
    void unhash(Node& node);
    Node* find_equal(Node& node) const;
    void hash(Node& node);
    void drop(Node& node, Node& for_this);  // the first is the second
    void set_weight_only(ClassId c);

    std::unique_ptr<Graph> graph_;
    mutable std::vector<ClassId> parent_;
    std::vector<Class> classes_;
    std::unordered_map<const Value*, ClassId> class_of_;
    std::unordered_multimap<uint64_t, Node*> nodes_;
    std::unordered_map<const Node*, uint64_t> hashed_;
    std::unordered_map<const Node*, Node*> replaced_by_;
    std::vector<Value*> stale_;  // were representatives; their uses are to move
    size_t live_classes_ = 0, live_nodes_ = 0;
};

}  // namespace tessera
