// What a device takes for a graph: the kernels that the compiler would make of it, each by a roofline.
#pragma once

#include "base/machine.h"
#include "graph/graph.h"
#include "shard/cluster.h"

namespace tessera::shard {

struct KernelTime {
    std::string label;
    double flops = 0, bytes = 0, seconds = 0;
    bool product = false;      // its operations run at the rate of products
    double product_flops = 0;  // of the products in it
};

struct GraphTime {
    std::vector<KernelTime> kernels;
    double seconds = 0;
    double product_flops = 0;
    double scratch = 0;  // bytes of what lives between the kernels at the same time, outputs among them
};

Result<Machine> machine_of(const Cluster& cluster);  // its target's. E0603

bool is_product(const Node& node);  // its operations run at the rate of products
double product_flops(const Graph& graph);

// The graph's sizes are constants. `machine`: for whose target kernels are grouped.
Result<GraphTime> graph_time(const std::shared_ptr<const Graph>& graph, const Machine& machine,
                             const DeviceSpeeds& speeds);

}  // namespace tessera::shard
