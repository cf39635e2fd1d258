#include "tessera/simulate.h"

#include <fnmatch.h>

#include <algorithm>

#include "backends/backend.h"
#include "base/clock.h"
#include "base/protect.h"
#include "shard/prepare.h"
#include "shard/simulate/stage_graphs.h"
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
    // A rank and its peer on the next stage.
    GroupShape stage_pair(const Network& network) const {
        int64_t stride = 1;
        for (size_t a = all.axes().size(); pipeline && a-- > *pipeline + 1;) stride *= all.size(a);
        return group_shape(network, {0, stride});
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
    if (options.microbatches < 1) return Error(Code::E0501, "a step of {} microbatches", options.microbatches);
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

void add_steps(Simulation& s, const std::string& pass, const RankTime& time) {
    for (const RankEvent& e : time.events) {
        if (e.collective)
            s.steps.push_back(
                {pass, e.name.substr(0, e.name.find(' ')), e.name.substr(e.name.find(' ') + 1), 0, e.bytes, e.seconds});
        for (const KernelTime& k : e.kernels)
            s.steps.push_back({pass, k.product ? "product" : "kernel", k.label, k.flops, k.bytes, k.seconds});
    }
}

Status check_annotations(const Graph& graph, const Annotations& annotations) {
    std::vector<std::string> names;
    for (const auto& v : graph.inputs()) names.push_back(v->name());
    for (const auto& v : graph.constants()) names.push_back(v->name());
    for (const auto& n : graph.nodes())
        for (size_t i = 0; i < n->output_count(); ++i) names.push_back(n->output(i)->name());
    for (const auto& [pattern, text] : annotations)
        if (std::none_of(names.begin(), names.end(),
                         [&, &p = pattern](const std::string& n) { return fnmatch(p.c_str(), n.c_str(), 0) == 0; }))
            return Error(Code::E0401, "the model to be partitioned has no value \"{}\"", pattern)
                .hint("tessera shard MODEL --mesh MESH --explain lists its values");
    return {};
}

// The least of some runs, in this process.
Result<double> measured_seconds(const Segment& segment, const CompileOptions& options) {
    constexpr int kRuns = 5;
    const Executable executable = TRY(compile(Model(std::shared_ptr<Graph>(segment.graph)), options));
    std::vector<Datum> inputs;
    for (const auto& in : segment.graph->inputs()) {
        const TensorType& type = in->type().tensor();
        std::vector<int64_t> sizes;
        for (const Dim& d : type.shape) sizes.push_back(*d.as_int());
        inputs.emplace_back(TRY(Tensor::filled(type.dtype, sizes, is_float(type.dtype) ? 0.5 : 0)));
    }
    double best = 0;
    for (int i = 0; i <= kRuns; ++i) {
        const double began = wall_seconds();
        TRY(executable.run_in_order(inputs));
        const double took = wall_seconds() - began;
        best = i < 2 ? took : std::min(best, took);
    }
    return best;
}

// A model's runs: each stage a plan of its own, or one plan where there are no stages.
class ModelSimulation {
  public:
    ModelSimulation(const Graph& graph, const SimulateOptions& options, const Cluster& cluster, const Machine& machine,
                    const MeshRoles& roles, const PipelineShape& pipeline)
        : graph_(graph),
          options_(options),
          cluster_(cluster),
          machine_(machine),
          roles_(roles),
          pipeline_(pipeline),
          result_(begun(cluster, roles)) {}

    Result<Simulation> run() {
        const int64_t chunks = pipeline_.schedule == PipelineSchedule::Interleaved ? pipeline_.chunks : 1;
        const int64_t parts = pipeline_.stages * chunks;
        if (parts == 1)
            stages_.push_back({std::shared_ptr<Graph>(graph_.clone()), {}, {}});
        else
            stages_ = TRY(stage_graphs(graph_, parts, cluster_.device));
        for (size_t i = 0; i < stages_.size(); ++i) TRY(time_stage(i));
        const PipelineTime time = TRY(pipeline_time(pipeline_, chunks_));
        result_.seconds = time.seconds;
        const auto m = double(pipeline_.microbatches), stages = double(pipeline_.stages);
        double flops = 0;
        for (size_t i = 0; i < times_.size(); ++i) {
            result_.compute += m * times_[i].compute / stages;
            result_.communication += m * times_[i].exposed() / stages;
            flops += m * times_[i].product_flops / stages;
        }
        result_.bubble = std::max(0.0, result_.seconds - result_.compute - result_.communication);
        const double model_flops =
            m * TRY(graph_time(stages_.size() == 1 ? stages_[0].graph : std::shared_ptr<Graph>(graph_.clone()),
                               machine_, cluster_.device))
                    .product_flops;
        const double peak = cluster_.device.peak(product_type());
        result_.flops_per_device = flops / result_.seconds;
        result_.hardware_utilization = result_.flops_per_device / peak;
        result_.utilization =
            model_flops * double(roles_.replica_count) / (result_.seconds * peak * double(result_.devices));
        add_lanes(time, chunks);
        return std::move(result_);
    }

  private:
    // Of the operands of the model's products.
    DType product_type() const {
        for (const auto& n : graph_.nodes())
            if (n->is(Trait::Bilinear) && !n->is(Trait::Elementwise)) return n->input(0)->type().tensor().dtype;
        return DType::f32;
    }

    Status time_stage(size_t i) {
        const StageGraph& stage = stages_[i];
        Shardings given = TRY(annotated_values(*stage.graph, roles_.plan, options_.annotations));
        for (const auto& in : stage.graph->inputs())
            if (auto at = received_.find(in->name()); at != received_.end())
                given.insert_or_assign(in.get(), at->second);
        shard::PlanOptions plan_options{.operations_per_byte = operations_per_byte(cluster_)};
        plan_options.whole_outputs = i + 1 == stages_.size();
        const auto plan = TRY(make_plan(stage.graph, roles_.plan, given, plan_options));
        RankTimeOptions rank{.overlap = options_.overlap};
        rank.group = [&](const std::vector<size_t>& axes) { return roles_.group(cluster_.network, axes); };
        if (options_.measured)
            rank.measured = [&](size_t, const Segment& segment) { return measured_seconds(segment, options_.compile); };
        times_.push_back(TRY(rank_time(*plan, machine_, cluster_, rank)));
        add_steps(result_, stages_.size() == 1 ? "run" : fmt::format("part {}", i), times_.back());
        for (const auto& [v, sharding] : plan->shardings) {
            Sharding closed = sharding;
            for (DimSharding& d : closed.dims) d.open = false;
            received_.insert_or_assign(v->name(), closed);
        }
        double sent = 0;
        for (const std::string& name : stage.sent)
            if (const Value* v = stage.graph->find_value(name); v && divisible_sizes(*v))
                sent += part_bytes({v, v->type().tensor().dtype, divisible_sizes(*v),
                                    place(*divisible_sizes(*v), received_.at(name), roles_.plan)},
                                   0);
        ChunkTime chunk{.forward = times_.back().seconds};
        chunk.sends_forward = collective_seconds(CollectiveKind::SendReceive, sent, roles_.stage_pair(cluster_.network),
                                                 cluster_.network);
        chunks_.push_back(chunk);
        return {};
    }

    void add_lanes(const PipelineTime& time, int64_t chunks) {
        const auto p = size_t(pipeline_.stages);
        for (size_t s = 0; s < p; ++s) {
            SimulatedStage& shown = result_.stages.emplace_back();
            shown.in_flight = 1;
            size_t nodes = 0;
            for (size_t c = 0; c < size_t(chunks); ++c) {
                const RankTime& t = times_[c * p + s];
                nodes += stages_[c * p + s].graph->nodes().size();
                shown.forward += t.seconds;
                shown.memory.weights += t.weights;
                shown.memory.activations = std::max(shown.memory.activations, t.activations);
            }
            shown.holds = fmt::format("{} nodes", nodes);
            result_.memory = std::max(result_.memory, shown.memory.total());
            for (const PipelineEvent& e : time.stages[s])
                for (const RankEvent& r : times_[size_t(e.chunk) * p + s].events)
                    result_.events.push_back(
                        {fmt::format("stage {}{}", s, r.collective && options_.overlap ? " network" : ""), r.name,
                         r.collective ? "collective" : "compute", e.begin + r.begin, r.seconds});
        }
    }

    const Graph& graph_;
    const SimulateOptions& options_;
    const Cluster& cluster_;
    const Machine& machine_;
    const MeshRoles& roles_;
    const PipelineShape& pipeline_;
    Simulation result_;
    std::vector<StageGraph> stages_;
    std::vector<RankTime> times_;
    std::vector<ChunkTime> chunks_;
    std::map<std::string, Sharding> received_;  // by value, as the stage that makes it leaves it
};

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

        Simulation s = begun(cluster, roles);
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
        return s;
    });
}

Result<Simulation> simulate(const Model& model, const SimulateOptions& options) {
    return protect("simulate", {.text = [&] { return model.to_text(); }}, [&]() -> Result<Simulation> {
        const Cluster cluster = TRY(find_cluster(options.cluster));
        const Machine machine = TRY(TRY(find_backend(cluster.device.target))->machine(cluster.device.target));
        const MeshRoles roles = TRY(roles_of(options.mesh, options.annotations));
        const PipelineShape pipeline = TRY(pipeline_of(options, roles, false));
        const auto graph = TRY(graph_to_shard(model.graph(), options.sizes));
        TRY(check_annotations(*graph, options.annotations));
        return ModelSimulation(*graph, options, cluster, machine, roles, pipeline).run();
    });
}

Status Simulation::write_chakra(const std::string&) const { return Error(Code::E0501, "not yet"); }

}  // namespace tessera
