// What is repeated in a graph: values with equal colours have equal types and stand in equal places.
#pragma once

#include "graph/graph.h"

namespace tessera::shard {

class Colours {
  public:
    explicit Colours(const Graph& graph);
    uint64_t of(const Value* v) const { return colours_.at(v); }

  private:
    uint64_t of_node(const Node& n) const;
    uint64_t around(const Value* v, uint64_t colour) const;

    std::unordered_map<const Value*, uint64_t> colours_;
};

}  // namespace tessera::shard
