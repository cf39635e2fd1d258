// What the axes of a simulated mesh are for: partitioning, replicas, or stages of a pipeline.
#pragma once

#include "shard/simulate/block_time.h"
#include "shard/simulate/chakra.h"
#include "shard/simulate/pipeline.h"
#include "tessera/simulate.h"

namespace tessera::shard {

// The axes of a mesh by what they are for.
struct MeshRoles {
    Mesh all, plan;                 // all axes; those that the program is partitioned over
    std::vector<size_t> plan_axes;  // in `all`, by axis of the plan
    std::vector<size_t> replicas;
    std::optional<size_t> pipeline;
    int64_t replica_count = 1, stages = 1;

    GroupShape group(const Network& network, const std::vector<size_t>& axes_of_plan) const {
        std::vector<size_t> axes;
        for (size_t a : axes_of_plan) axes.push_back(plan_axes[a]);
        return group_shape(network, all, axes);
    }
    // A rank and its peer on the next stage.
    GroupShape stage_pair(const Network& network) const {
        int64_t stride = 1;
        for (size_t a = all.axes().size(); pipeline && a-- > *pipeline + 1;) stride *= all.size(a);
        return group_shape(network, {0, stride});
    }
};

Result<MeshRoles> roles_of(const std::string& mesh, const Annotations& annotations);
Result<PipelineShape> pipeline_of(const SimulateOptions& options, const MeshRoles& roles, bool training);

struct Simulated {
    Simulation shown;
    TracedMesh traced;
};
Simulated begun(const Cluster& cluster, const MeshRoles& roles);
void add_steps(Simulation& s, const std::string& pass, const RankTime& time);
// Its collectives, with axes of the whole mesh.
std::vector<TracedCollective> traced_collectives(const RankTime& time, const MeshRoles& roles);

}  // namespace tessera::shard
