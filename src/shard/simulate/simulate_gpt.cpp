#include "shard/simulate/simulate_gpt.h"

#include <algorithm>
#include <map>

#include "shard/simulate/training_time.h"

namespace tessera::shard {
namespace {

constexpr const char* kTensorAxis = "model";

Status check_gpt(const GptShape& g, const SimulateOptions& options) {
    for (const auto& [name, value] : {std::pair<const char*, int64_t>{"layers", g.layers},
                                      {"hidden", g.hidden},
                                      {"heads", g.heads},
                                      {"sequence", g.sequence},
                                      {"vocabulary", g.vocabulary},
                                      {"microbatch", options.microbatch}})
        if (value < 1 || value > (int64_t{1} << 24))
            return Error(Code::E0501, "a GPT with {} = {}", name, value).hint("expected 1 to {}", 1 << 24);
    if (g.hidden % g.heads != 0)
        return Error(Code::E0501, "{} features do not divide into {} heads", g.hidden, g.heads);
    return {};
}

Annotations gpt_annotations(const SimulateOptions& options, const Mesh& mesh) {
    if (!options.annotations.empty() || !mesh.find(kTensorAxis)) return options.annotations;
    Annotations a{{"wqkv", "_,model"}, {"w1", "_,model"}, {"logits", "_,model"}, {"words", "_,model"}};
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
        shown.holds =
            fmt::format("{}{} layers{}", stage.embeds ? "embedding, " : "", stage.layers, stage.ends ? ", head" : "");
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

// What each stage does, a pass over all of its layers in one piece: collectives of a kind are one, of all their bytes.
class GptTraces {
  public:
    GptTraces(TracedMesh& traced, const TrainingBlocks& blocks, const TrainingShape& shape, const TrainingTime& time,
              const MeshRoles& roles)
        : traced_(traced), blocks_(blocks), shape_(shape), time_(time), roles_(roles) {}

    void run() {
        for (size_t s = 0; s < time_.stages.size(); ++s) {
            for (const PipelineEvent& e : time_.pipeline.stages[s]) traced_.stages[s].push_back(pass(e));
            const TrainingTime::Stage& stage = time_.stages[s];
            if (roles_.replica_count > 1) {
                TracedPass reduction{.name = "gradients"};
                const bool divided = shape_.shard_optimizer;
                reduction.collectives.push_back({divided ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce,
                                                 stage.reduced, roles_.replicas});
                traced_.stages[s].push_back(reduction);
            }
            TracedPass update{.name = "optimizer", .seconds = stage.update};
            if (roles_.replica_count > 1 && shape_.shard_optimizer)
                update.collectives.push_back({CollectiveKind::AllGather, stage.memory.weights, roles_.replicas});
            traced_.stages[s].push_back(update);
        }
    }

  private:
    TracedPass pass(const PipelineEvent& e) const {
        const int64_t p = shape_.pipeline.stages, at = e.chunk * p + e.stage;
        const int64_t chunks = p * chunk_count();
        TracedPass t{.name = fmt::format("{}{} {}", e.forward ? "F" : "B", e.microbatch, e.chunk)};
        std::map<std::pair<CollectiveKind, std::vector<size_t>>, double> collectives;
        auto add = [&](const BlockTime& block, double times) {
            const RankTime& rank = e.forward ? block.forward : block.backward;
            t.seconds += times * rank.compute;
            t.flops += times * rank.product_flops;
            for (const RankEvent& r : rank.events)
                if (!r.collective) t.bytes += times * r.bytes;
            for (const TracedCollective& c : traced_collectives(rank, roles_))
                collectives[{c.kind, c.axes}] += times * c.bytes;
        };
        add(blocks_.layer, double(blocks_.layers) / double(chunks));
        if (at == 0) add(blocks_.embedding, 1);
        if (at + 1 == chunks) add(blocks_.head, 1);
        for (const auto& [key, bytes] : collectives) t.collectives.push_back({key.first, bytes, key.second});
        const int64_t before = at + (e.forward ? -1 : 1), after = at + (e.forward ? 1 : -1);
        auto tag = [&](int64_t from) { return int64_t((e.microbatch * chunks + from) * 2 + int64_t(e.forward)); };
        if (p > 1 && before >= 0 && before < chunks) t.receives = {before % p, tag(before), blocks_.layer.result};
        if (p > 1 && after >= 0 && after < chunks) t.sends = {after % p, tag(at), blocks_.layer.result};
        return t;
    }
    int64_t chunk_count() const {
        return shape_.pipeline.schedule == PipelineSchedule::Interleaved ? shape_.pipeline.chunks : 1;
    }

    TracedMesh& traced_;
    const TrainingBlocks& blocks_;
    const TrainingShape& shape_;
    const TrainingTime& time_;
    const MeshRoles& roles_;
};

}  // namespace

Result<Simulated> gpt_simulation(const GptShape& shape, const SimulateOptions& options) {
    TRY(check_gpt(shape, options));
    const Cluster cluster = TRY(find_cluster(options.cluster));
    const Machine machine = TRY(machine_of(cluster));
    const Mesh named = TRY(Mesh::parse(options.mesh, kMostSimulated));
    const Annotations annotations = gpt_annotations(options, named);
    const MeshRoles roles = TRY(roles_of(options.mesh, annotations));
    BlockTimeOptions block{
        .mesh = roles.plan, .annotations = annotations, .recompute = TRY(read_recompute(options.recompute))};
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
    training.stage_pair = roles.stage_pair(cluster.network);
    training.overlap = options.overlap;
    training.shard_optimizer = options.shard_optimizer;
    const TrainingTime time = TRY(training_time(
        blocks, training, cluster, [&](double parameters) { return adamw_seconds(parameters, machine, cluster); }));

    Simulated made = begun(cluster, roles);
    Simulation& s = made.shown;
    s.seconds = time.seconds;
    s.parameters = time.all_parameters;
    const double peak = cluster.device.peak(DType::bf16);
    s.flops_per_device = time.product_flops / time.seconds;
    s.hardware_utilization = s.flops_per_device / peak;
    s.utilization = time.model_flops * double(roles.replica_count) / (time.seconds * peak * double(s.devices));
    s.tokens_per_second = double(roles.replica_count) * double(options.microbatches * options.microbatch) *
                          double(shape.sequence) / time.seconds;
    add_stages(s, time, options.microbatches);
    for (const auto& [name, b] : {std::pair<const char*, const BlockTime*>{"embedding", &blocks.embedding},
                                  {"layer", &blocks.layer},
                                  {"head", &blocks.head}}) {
        add_steps(s, fmt::format("{}, forward", name), b->forward);
        add_steps(s, fmt::format("{}, backward", name), b->backward);
    }
    GptTraces(made.traced, blocks, training, time, roles).run();
    return made;
}

}  // namespace tessera::shard
