#include "shard/simulate/mesh_roles.h"

#include <algorithm>

namespace tessera::shard {
namespace {

constexpr const char* kPipelineAxis = "pipeline";

// Whether the text of a sharding names the axis.
bool names_axis(const std::string& sharding, const std::string& axis) {
    for (const std::string& dim : split_text(sharding, ','))
        for (std::string name : split_text(dim, '+')) {
            if (name.ends_with('?')) name.pop_back();
            if (name == axis) return true;
        }
    return false;
}

}  // namespace

Result<MeshRoles> roles_of(const std::string& mesh, const Annotations& annotations) {
    MeshRoles roles;
    roles.all = TRY(Mesh::parse(mesh, kMostSimulated));
    std::vector<MeshAxis> axes;
    for (size_t a = 0; a < roles.all.axes().size(); ++a) {
        const MeshAxis& axis = roles.all.axes()[a];
        const bool named = std::any_of(annotations.begin(), annotations.end(),
                                       [&](const auto& pair) { return names_axis(pair.second, axis.name); });
        if (axis.name == kPipelineAxis) {
            roles.pipeline = a;
            roles.stages = axis.size;
        } else if (named) {
            roles.plan_axes.push_back(a);
            axes.push_back(axis);
        } else {
            roles.replicas.push_back(a);
            roles.replica_count *= axis.size;
        }
    }
    int64_t planned = 1;
    for (const MeshAxis& axis : axes) planned *= axis.size;
    if (planned > kMostRanks)
        return Error(Code::E0501, "annotations divide over {} ranks, more than {}", planned, kMostRanks)
            .hint("replicas of the model need no annotation");
    roles.plan = Mesh(std::move(axes));
    return roles;
}

Result<PipelineShape> pipeline_of(const SimulateOptions& options, const MeshRoles& roles, bool training) {
    PipelineShape p{.schedule = TRY(read_schedule(options.schedule)),
                    .stages = roles.stages,
                    .microbatches = options.microbatches,
                    .chunks = options.chunks,
                    .training = training};
    if (options.microbatches < 1) return Error(Code::E0501, "a step of {} microbatches", options.microbatches);
    if (options.chunks < 1) return Error(Code::E0501, "stages of {} chunks", options.chunks);
    if (options.chunks > 1 && p.schedule != PipelineSchedule::Interleaved)
        return Error(Code::E0501, "the schedule {} has one chunk of layers on each stage", options.schedule)
            .hint("choose the schedule interleaved");
    return p;
}

Simulated begun(const Cluster& cluster, const MeshRoles& roles) {
    Simulated made;
    Simulation& s = made.shown;
    s.cluster = cluster.name;
    s.device = cluster.device.name;
    s.mesh = to_string(roles.all);
    s.devices = roles.all.ranks();
    s.device_memory = cluster.device.memory;
    s.sources = cluster.sources;
    made.traced = {roles.all, roles.pipeline, std::vector<std::vector<TracedPass>>(size_t(roles.stages))};
    return made;
}

void add_steps(Simulation& s, const std::string& pass, const RankTime& time) {
    for (const RankEvent& e : time.events) {
        if (e.collective)
            s.steps.push_back(
                {pass, e.name.substr(0, e.name.find(' ')), e.name.substr(e.name.find(' ') + 1), 0, e.bytes, e.seconds});
        for (const KernelTime& k : e.kernels)
            s.steps.push_back({pass, k.product ? "product" : "kernel", k.label, k.flops, k.bytes, k.seconds});
    }
}

std::vector<TracedCollective> traced_collectives(const RankTime& time, const MeshRoles& roles) {
    std::vector<TracedCollective> list;
    for (const RankEvent& e : time.events) {
        if (!e.collective) continue;
        TracedCollective c{*e.collective, e.bytes, {}};
        for (size_t a : e.axes) c.axes.push_back(roles.plan_axes[a]);
        list.push_back(std::move(c));
    }
    return list;
}

}  // namespace tessera::shard
