// Costs of a graph with open sizes, at given ones: nodes are weighed as if their symbols were those numbers.
#pragma once

#include "search/cost.h"

namespace tessera {

class CostAtSizes : public CostModel {
  public:
    CostAtSizes(CostModel& cost, SymbolValues sizes) : cost_(cost), sizes_(std::move(sizes)) {}
    double node(const Node& node) override { return cost_.node(fixed(node)); }
    void expect(const std::vector<std::vector<const Node*>>& classes) override;
    std::optional<double> groups(const Graph& graph) override;
    std::string name() const override { return cost_.name(); }

  private:
    const Node& fixed(const Node& node);  // itself where no size is open, or one stays so

    CostModel& cost_;
    SymbolValues sizes_;
    std::unordered_map<std::string, std::shared_ptr<Graph>> made_;  // by cost_key; null: a size stays open
};

}  // namespace tessera
