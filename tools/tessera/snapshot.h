// A graph as plain data, for the report: what stays readable when the graph goes on changing. Inputs, constants and
// outputs of the graph are items too, and a value is an item and which of its outputs. Nodes of nested graphs stand
// before the node that they belong to, which has their outputs behind its own inputs.
#pragma once

#include "command.h"

namespace tessera::cli {

struct ItemFacts {
    enum class Kind { Op, Input, Constant, Output };
    Kind kind = Kind::Op;
    std::string op, name, attrs;
    std::string scope;                         // of a nested graph: the nodes and attributes it hangs on
    std::vector<std::string> outputs, types;   // a small constant's "name" is its value
    std::optional<double> flops, bytes;        // at the sizes asked for
    std::string flops_formula, bytes_formula;  // where they are symbolic
    bool complete = true;                      // false: there is work that is not counted
    int nested = 0;                            // how many of its last inputs are outputs of its nested graphs
    const void* data = nullptr;                // of a large constant
    bool operator==(const ItemFacts&) const = default;
};
using Facts = std::shared_ptr<const ItemFacts>;

struct ItemRef {
    int item = -1, output = 0;  // -1: an optional input that is not given
    bool operator==(const ItemRef&) const = default;
};

struct Snapshot {
    std::vector<Facts> items;                  // what is used stands before what uses it
    std::vector<std::vector<ItemRef>> inputs;  // of each item
};

// Takes snapshots of one graph at different times; what did not change in between is shared.
class Camera {
  public:
    explicit Camera(SymbolValues sizes) : sizes_(std::move(sizes)) {}
    Snapshot take(const Graph& graph);

  private:
    class Shot;
    struct Known {
        Facts facts;
        uint64_t signature = 0;  // of all that the counts follow from
    };
    SymbolValues sizes_;
    std::unordered_map<std::string, Known> known_;  // by kind, scope and first output
};

}  // namespace tessera::cli
