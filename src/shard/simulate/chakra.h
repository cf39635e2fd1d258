// Chakra execution traces: for each device a file of its computations and collectives as a graph of dependences, which
// simulators of networks (ASTRA-sim) read. The format is protobuf messages, each behind its length.
#pragma once

#include "shard/simulate/rank_time.h"

namespace tessera::shard {

struct TracedCollective {
    CollectiveKind kind;
    double bytes = 0;
    std::vector<size_t> axes = {};  // of the traced mesh
};

// What a stage does in one piece: what it waits for, computation, then collectives, then what it sends on.
struct TracedPass {
    std::string name;
    double seconds = 0, flops = 0, bytes = 0;  // of the computation
    std::vector<TracedCollective> collectives = {};
    struct Message {
        int64_t stage = 0, tag = 0;
        double bytes = 0;
    };
    std::optional<Message> receives = {}, sends = {};
};

struct TracedMesh {
    Mesh mesh;
    std::optional<size_t> pipeline;               // the axis of stages
    std::vector<std::vector<TracedPass>> stages;  // by stage
};

std::string chakra_trace(const TracedMesh& traced, int64_t rank);

}  // namespace tessera::shard
