// What graphs cost on a target, in seconds. A node's cost is its share of the fused group that it ends up in: what only
// moves elements or follows a product element by element is nearly free. Weights alone cost nothing; callers leave out
// nodes that are computed from constants.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "base/machine.h"
#include "graph/graph.h"

namespace tessera {

class CostModel {
  public:
    virtual ~CostModel() = default;
    virtual double node(const Node& node) = 0;
    // Said before costs are asked for: nodes that can stand for one another, by class, what came in first.
    virtual void expect(const std::vector<std::vector<const Node*>>& classes);
    // The total cost of the kernels that the compiler would create for a graph, each a group of nodes; nothing if only
    // single nodes have costs.
    virtual std::optional<double> groups(const Graph& graph);
    virtual std::string name() const = 0;
    double graph(const Graph& graph);  // every node that is not computed from constants alone
};

// What a machine does in a second.
struct Speeds {
    double flops = 60e9;     // of products
    double map_flops = 8e9;  // element by element, and of other reductions
    double bytes = 20e9;     // between kernels
    double launch = 1e-6;    // of one kernel
    // By whose sizes convolutions are estimated that may be computed in tiles, and which computes none by Strassen;
    // none: it is a processor.
    std::optional<Machine> gpu = {};
};

// From the ops' bodies (graph/count.h): products by operations, the rest by bytes. With `fused`, what a product's
// kernel takes in costs a fraction of its bytes; without, each op is a kernel of its own (a sum of op costs).
std::unique_ptr<CostModel> estimated_cost(const Speeds& speeds = {}, bool fused = true);

// How a node counts.
enum class Work { View, Map, Product, Other };
Work work_of(const Node& node);

// Computed from constants alone.
bool from_weights(const Value& value);

// Element types, sizes and attributes: nodes of one text cost the same.
std::string cost_key(const Node& node);

}  // namespace tessera
