#include "shard/simulate/simulate_model.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>

#include "shard/simulate/stage_graphs.h"

namespace tessera::shard {
namespace {

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

// A model's runs: each stage a plan of its own, or one plan where there are no stages.
class ModelSimulation {
  public:
    ModelSimulation(const Graph& graph, const SimulateOptions& options, const Cluster& cluster, const Machine& machine,
                    const MeshRoles& roles, const PipelineShape& pipeline, const MeasureSegment& measured)
        : graph_(graph),
          options_(options),
          cluster_(cluster),
          machine_(machine),
          roles_(roles),
          pipeline_(pipeline),
          measured_(measured),
          made_(begun(cluster, roles)),
          result_(made_.shown) {}

    Result<Simulated> run() {
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
        const double model_flops = m * shard::product_flops(graph_);
        const double peak = cluster_.device.peak(product_type());
        result_.flops_per_device = flops / result_.seconds;
        result_.hardware_utilization = result_.flops_per_device / peak;
        result_.utilization =
            model_flops * double(roles_.replica_count) / (result_.seconds * peak * double(result_.devices));
        add_lanes(time, chunks);
        return std::move(made_);
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
        PlanOptions plan_options{.operations_per_byte = operations_per_byte(cluster_)};
        plan_options.whole_outputs = i + 1 == stages_.size();
        const auto plan = TRY(make_plan(stage.graph, roles_.plan, given, plan_options));
        RankTimeOptions rank{.overlap = options_.overlap};
        rank.group = [&](const std::vector<size_t>& axes) { return roles_.group(cluster_.network, axes); };
        if (measured_) rank.measured = [&](size_t, const Segment& segment) { return measured_(segment); };
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
        sent_.push_back(sent);
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
            for (const PipelineEvent& e : time.stages[s]) trace(e, chunks);
            for (const PipelineEvent& e : time.stages[s])
                for (const RankEvent& r : times_[size_t(e.chunk) * p + s].events)
                    result_.events.push_back(
                        {fmt::format("stage {}{}", s, r.collective && options_.overlap ? " network" : ""), r.name,
                         r.collective ? "collective" : "compute", e.begin + r.begin, r.seconds});
        }
    }

    // The pieces between collectives.
    void trace(const PipelineEvent& e, int64_t chunks) {
        const int64_t p = pipeline_.stages, at = e.chunk * p + e.stage, last = chunks * p - 1;
        const RankTime& time = times_[size_t(at)];
        std::vector<TracedPass> passes(1);
        auto collectives = traced_collectives(time, roles_);
        size_t next = 0;
        for (const RankEvent& r : time.events) {
            if (r.collective) {
                passes.back().collectives.push_back(collectives[next++]);
                continue;
            }
            if (passes.back().seconds > 0 || !passes.back().collectives.empty()) passes.emplace_back();
            passes.back().seconds = r.seconds;
            passes.back().flops = r.flops;
            passes.back().bytes = r.bytes;
        }
        for (TracedPass& pass : passes) pass.name = fmt::format("microbatch {} part {}", e.microbatch, at);
        const auto tag = [&](int64_t from) { return e.microbatch * (last + 1) + from; };
        if (p > 1 && at > 0) passes.front().receives = {(at - 1) % p, tag(at - 1), sent_[size_t(at - 1)]};
        if (p > 1 && at < last) passes.back().sends = {(at + 1) % p, tag(at), sent_[size_t(at)]};
        auto& list = made_.traced.stages[size_t(e.stage)];
        std::move(passes.begin(), passes.end(), std::back_inserter(list));
    }

    const Graph& graph_;
    const SimulateOptions& options_;
    const Cluster& cluster_;
    const Machine& machine_;
    const MeshRoles& roles_;
    const PipelineShape& pipeline_;
    const MeasureSegment& measured_;
    Simulated made_;
    Simulation& result_;
    std::vector<StageGraph> stages_;
    std::vector<RankTime> times_;
    std::vector<ChunkTime> chunks_;
    std::vector<double> sent_;                  // bytes
    std::map<std::string, Sharding> received_;  // by value, as the stage that makes it leaves it
};

}  // namespace

Result<Simulated> model_simulation(const Graph& graph, const SimulateOptions& options, const MeasureSegment& measured) {
    const Cluster cluster = TRY(find_cluster(options.cluster));
    const Machine machine = TRY(machine_of(cluster));
    const MeshRoles roles = TRY(roles_of(options.mesh, options.annotations));
    const PipelineShape pipeline = TRY(pipeline_of(options, roles, false));
    TRY(check_annotations(graph, options.annotations));
    return ModelSimulation(graph, options, cluster, machine, roles, pipeline, measured).run();
}

}  // namespace tessera::shard
