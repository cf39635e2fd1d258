// Shardings that nobody annotated: a search over annotations of inputs and weights, each judged by the plan that
// propagation makes of it. What is repeated (the layers of a transformer) is decided once.
#pragma once

#include "shard/plan.h"

namespace tessera::shard {

struct SearchOptions {
    PlanOptions plan = {};
    double latency_bytes = 1 << 16;      // what a rank could receive in the time that a collective takes to begin
    std::optional<int64_t> memory = {};  // bytes of weights that a rank may keep
};

// What a run of the plan costs a rank: bytes that it receives, operations in bytes, and latencies.
double cost_of(const Plan& plan, const SearchOptions& options);

struct Found {
    Shardings given;  // annotations, those of the user among them
    double cost = 0;
    int64_t memory = 0;  // of a rank's weights, at most
    int plans = 0;       // that were compared
};

// Annotations are added one by one, each the best of all that could be: those that bring the weights into the memory
// first, by the bytes that they save for what they cost, then those that make the plan cheaper. E0408 where the weights
// do not come to fit.
Result<Found> search_shardings(const std::shared_ptr<const Graph>& graph, const Mesh& mesh, const Shardings& given,
                               const SearchOptions& options);

}  // namespace tessera::shard
