#include "tessera/simulate.h"

#include <algorithm>

#include "backends/backend.h"
#include "base/protect.h"
#include "shard/simulate/traces.h"
#include "shard/simulate/training_time.h"

namespace tessera {

using namespace shard;

namespace {

constexpr const char* kPipelineAxis = "pipeline";
constexpr const char* kTensorAxis = "model";

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
};

// Whether the text of a sharding names the axis.
bool names_axis(const std::string& sharding, const std::string& axis) {
    for (const std::string& dim : split_text(sharding, ','))
        for (std::string name : split_text(dim, '+')) {
            if (name.ends_with('?')) name.pop_back();
            if (name == axis) return true;
        }
    return false;
}

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
    if (options.microbatches < 1)
        return Error(Code::E0501, "a step of {} microbatches", options.microbatches);
    if (options.chunks < 1) return Error(Code::E0501, "stages of {} chunks", options.chunks);
    if (options.chunks > 1 && p.schedule != PipelineSchedule::Interleaved)
        return Error(Code::E0501, "the schedule {} has one chunk of layers on each stage", options.schedule)
            .hint("choose the schedule interleaved");
    return p;
}

Simulation begun(const Cluster& cluster, const MeshRoles& roles) {
    Simulation s;
    s.cluster = cluster.name;
    s.device = cluster.device.name;
    s.mesh = to_string(roles.all);
    s.devices = roles.all.ranks();
    s.device_memory = cluster.device.memory;
    s.sources = cluster.sources;
    return s;
}

Status check_gpt(const GptShape& g, const SimulateOptions& options) {
    for (const auto& [name, value] :
         {std::pair<const char*, int64_t>{"layers", g.layers}, {"hidden", g.hidden}, {"heads", g.heads},
          {"sequence", g.sequence}, {"vocabulary", g.vocabulary}, {"microbatch", options.microbatch}})
        if (value < 1 || value > (int64_t{1} << 24))
            return Error(Code::E0501, "a GPT with {} = {}", name, value).hint("expected 1 to {}", 1 << 24);
    if (g.hidden % g.heads != 0)
        return Error(Code::E0501, "{} features do not divide into {} heads", g.hidden, g.heads);
    return {};
}

Annotations gpt_annotations(const SimulateOptions& options, const Mesh& mesh) {
    if (!options.annotations.empty() || !mesh.find(kTensorAxis)) return options.annotations;
    Annotations a{{"wq", "_,model"}, {"w1", "_,model"}, {"logits", "_,model"}, {"words", "_,model"}};
    if (options.sequence_parallel) {
        a.emplace_back("x", "_,model,_");
        a.emplace_back("y", "_,model,_");
    }
    return a;
}

void add_stages(Simulation& s, const TrainingTime& time, int64_t microbatches) {
    const auto stages = double(time.stages.size());
    for (size_t i = 0; i < time.stages.size(); ++i) {
        const TrainingTime::Stage& stage = time.stages[i];
        const std::string lane = fmt::format("stage {}", i);
        SimulatedStage& shown = s.stages.emplace_back();
        shown.holds = fmt::format("{}{} layers{}", stage.embeds ? "embedding, " : "", stage.layers,
                                  stage.ends ? ", head" : "");
        shown.forward = stage.forward;
        shown.backward = stage.backward;
        shown.in_flight = time.pipeline.in_flight[i];
        shown.memory = stage.memory;
        s.memory = std::max(s.memory, stage.memory.total());
        for (const PipelineEvent& e : time.pipeline.stages[i])
            s.events.push_back({lane, fmt::format("{}{} {}", e.forward ? "F" : "B", e.microbatch, e.chunk),
                                e.forward ? "forward" : "backward", e.begin, e.end - e.begin});
        if (stage.reduction > 0)
            s.events.push_back({lane + " network", "gradients", "reduction", stage.reduction_begin, stage.reduction});
        s.events.push_back({lane, "optimizer", "update", stage.update_begin, stage.update});
        const double passes = double(microbatches) * (stage.forward + stage.backward);
        s.compute += double(microbatches) * stage.computing / stages;
        s.communication += (passes - double(microbatches) * stage.computing) / stages;
        s.update += stage.update / stages;
        s.reduction += (stage.update_begin - time.pipeline.stages[i].back().end) / stages;
    }
    s.bubble = s.seconds - s.compute - s.communication - s.update - s.reduction;
}

}  // namespace

std::string Simulation::chrome_trace() const { return chrome_trace_of(events); }

std::vector<std::string> simulated_clusters() { return cluster_names(); }

Result<Simulation> simulate_gpt(const GptShape& shape, const SimulateOptions& options) {
    return protect("simulate", {}, [&]() -> Result<Simulation> {
        TRY(check_gpt(shape, options));
        const Cluster cluster = TRY(find_cluster(options.cluster));
        const Machine machine = TRY(TRY(find_backend(cluster.device.target))->machine(cluster.device.target));
        const Mesh named = TRY(Mesh::parse(options.mesh, kMostSimulated));
        const Annotations annotations = gpt_annotations(options, named);
        const MeshRoles roles = TRY(roles_of(options.mesh, annotations));
        BlockTimeOptions block{.mesh = roles.plan,
                               .annotations = annotations,
                               .recompute = TRY(read_recompute(options.recompute))};
        block.rank.overlap = options.overlap;
        block.rank.group = [&](const std::vector<size_t>& axes) { return roles.group(cluster.network, axes); };
        const PipelineShape pipeline = TRY(pipeline_of(options, roles, true));
        auto timed = [&](Result<TrainedBlock> made) -> Result<BlockTime> {
            return block_time(TRY(std::move(made)), machine, cluster, block);
        };
        TrainingBlocks blocks;
        blocks.layers = shape.layers;
        blocks.layer = TRY(timed(gpt_layer(shape, options.microbatch)));
        blocks.embedding = TRY(timed(gpt_embedding(shape, options.microbatch)));
        blocks.head = TRY(timed(gpt_head(shape, options.microbatch)));
        TrainingShape training{.pipeline = pipeline, .replicas = roles.replica_count};
        training.replica_group = group_shape(cluster.network, roles.all, roles.replicas);
        int64_t stride = 1;
        for (size_t a = roles.all.axes().size(); roles.pipeline && a-- > *roles.pipeline + 1;)
            stride *= roles.all.size(a);
        training.stage_pair = group_shape(cluster.network, {0, stride});
        training.overlap = options.overlap;
        training.shard_optimizer = options.shard_optimizer;
        const TrainingTime time = TRY(training_time(blocks, training, cluster, [&](double parameters) {
            return adamw_seconds(parameters, machine, cluster);
        }));

        Simulation s = begun(cluster, roles);
        s.seconds = time.seconds;
        s.parameters = time.all_parameters;
        const double peak = cluster.device.peak(DType::bf16);
        s.flops_per_device = time.product_flops / time.seconds;
        s.hardware_utilization = s.flops_per_device / peak;
        s.utilization =
            time.model_flops * double(roles.replica_count) / (time.seconds * peak * double(s.devices));
        s.tokens_per_second = double(roles.replica_count) * double(options.microbatches * options.microbatch) *
                              double(shape.sequence) / time.seconds;
        add_stages(s, time, options.microbatches);
        return s;
    });
}

Result<Simulation> simulate(const Model&, const SimulateOptions&) { return Error(Code::E0501, "not yet"); }
Status Simulation::write_chakra(const std::string&) const { return Error(Code::E0501, "not yet"); }

}  // namespace tessera
