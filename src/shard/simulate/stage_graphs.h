// A graph as consecutive stages of a pipeline, about equally expensive: each gets what earlier ones computed.
#pragma once

#include "shard/simulate/kernel_time.h"

namespace tessera::shard {

struct StageGraph {
    std::shared_ptr<Graph> graph;
    std::vector<std::string> received;  // values of earlier stages, which are inputs after the graph's
    std::vector<std::string> sent;      // what the next stage has to get: for itself, and for later ones
};

// E0501 where the graph has fewer nodes than stages.
Result<std::vector<StageGraph>> stage_graphs(const Graph& graph, int64_t stages, const DeviceSpeeds& speeds);

}  // namespace tessera::shard
