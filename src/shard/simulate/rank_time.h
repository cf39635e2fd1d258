// A plan on a cluster: when a rank computes and when it communicates, and what memory it takes.
#pragma once

#include <functional>
#include <map>

#include "shard/local_program.h"
#include "shard/simulate/kernel_time.h"

namespace tessera::shard {

struct RankEvent {
    std::string name;
    std::optional<CollectiveKind> collective;  // none: computes
    double begin = 0, seconds = 0;
    double flops = 0;       // of computation, products' only
    double bytes = 0;       // that move through memory; of a collective, the whole tensor's
    GroupShape group = {};  // of a collective
    std::vector<size_t> axes = {};
    std::vector<size_t> after = {};  // events whose results it needs
    std::vector<KernelTime> kernels = {};
};

struct RankTime {
    std::vector<RankEvent> events;
    double seconds = 0, compute = 0, communication = 0;  // computing and communicating overlap where that is allowed
    double exposed() const { return seconds - compute; }
    double product_flops = 0;
    double weights = 0;      // bytes that a rank keeps
    double activations = 0;  // bytes of all else, at most at the same time
};

struct RankTimeOptions {
    bool overlap = false;  // a collective runs beside what does not depend on it
    // Inputs of the graph that are kept, as weights are. Constants always are.
    std::function<bool(const Value&)> is_weight = [](const Value&) { return false; };
    // The members of a group over axes of the plan's mesh; by default the mesh is all of the cluster that is used.
    std::function<GroupShape(const std::vector<size_t>&)> group = {};
    // Seconds of segment number `stage`, where they were measured.
    std::function<Result<double>(size_t stage, const Segment&)> measured = {};
};

// Of rank 0, whose parts are the largest.
Result<RankTime> rank_time(const Plan& plan, const Machine& machine, const Cluster& cluster,
                           const RankTimeOptions& options);

double part_bytes(const Held& held, int64_t rank);

}  // namespace tessera::shard
