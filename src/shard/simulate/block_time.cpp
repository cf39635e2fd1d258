#include "shard/simulate/block_time.h"

#include <fnmatch.h>

#include "shard/prepare.h"

namespace tessera::shard {
namespace {

class BlockTiming {
  public:
    BlockTiming(const TrainedBlock& block, const Machine& machine, const Cluster& cluster,
                const BlockTimeOptions& options)
        : block_(block), machine_(machine), cluster_(cluster), options_(options) {
        plan_options_.operations_per_byte = operations_per_byte(cluster);
        plan_options_.whole_outputs = false;
    }

    Result<BlockTime> run() {
        const auto prepared = TRY(graph_to_shard(*block_.graph, {}));
        const SplitPasses passes = TRY(split_passes(*prepared, options_.recompute));
        RankTimeOptions rank = options_.rank;
        rank.is_weight = [&](const Value& v) { return v.index() >= block_.weights && v.index() < block_.gradient; };
        const Shardings given = TRY(annotated_values(*passes.forward, options_.mesh, options_.annotations));
        const auto forward = TRY(make_plan(passes.forward, options_.mesh, given, plan_options_));
        time_.forward = TRY(rank_time(*forward, machine_, cluster_, rank));
        const auto backward =
            TRY(make_plan(passes.backward, options_.mesh, backward_shardings(passes, *forward), plan_options_));
        time_.backward = TRY(rank_time(*backward, machine_, cluster_, rank));
        count_bytes(passes, *forward);
        time_.model_flops = 3 * product_flops(*passes.forward);
        return std::move(time_);
    }

  private:
    Shardings backward_shardings(const SplitPasses& passes, const Plan& forward) const {
        Shardings given;
        auto like = [&](const Value* v, const Value* model) {
            const auto known = forward.shardings.find(model);
            if (known == forward.shardings.end() || !divisible_sizes(*v)) return;
            Sharding closed = known->second;
            for (DimSharding& d : closed.dims) d.open = false;
            given.try_emplace(v, closed);
        };
        const auto &from = passes.forward->inputs(), &to = passes.backward->inputs();
        for (size_t i = 0; i < passes.inputs; ++i)
            like(to[i].get(), i == block_.gradient ? passes.forward->outputs()[0] : from[i].get());
        for (size_t k = 0; k < passes.kept; ++k) like(to[passes.inputs + k].get(), passes.forward->outputs()[1 + k]);
        for (size_t i = 0; i < passes.backward->outputs().size(); ++i) {
            const size_t input = block_.passes_back ? (i == 0 ? 0 : block_.weights + i - 1) : block_.weights + i;
            like(passes.backward->outputs()[i], from[input].get());
        }
        return given;
    }

    void count_bytes(const SplitPasses& passes, const Plan& forward) {
        for (size_t i = 0; i < passes.inputs; ++i) {
            const Held& h = forward.held[size_t(forward.inputs[i])];
            const double bytes = part_bytes(h, 0), one = double(element_bytes(h.dtype));
            if (i >= block_.weights && i < block_.gradient) {
                time_.weights += bytes;
                time_.parameters += bytes / one;
                double all = 1;
                for (int64_t n : *h.sizes) all *= double(n);
                time_.all_parameters += all;
            } else if (i < block_.weights && !passes.backward->inputs()[i]->uses().empty()) {
                time_.kept += bytes;
            }
        }
        for (size_t o = 0; o < forward.outputs.size(); ++o) {
            const double bytes = part_bytes(forward.held[size_t(forward.outputs[o])], 0);
            (o == 0 ? time_.result : time_.kept) += bytes;
        }
    }

    const TrainedBlock& block_;
    const Machine& machine_;
    const Cluster& cluster_;
    const BlockTimeOptions& options_;
    PlanOptions plan_options_;
    BlockTime time_;
};

}  // namespace

double operations_per_byte(const Cluster& cluster) {
    return cluster.device.peak(DType::bf16) * cluster.device.product_fraction(1e11) /
           cluster.network.front().bytes_per_second;
}

Result<Shardings> annotated_values(const Graph& graph, const Mesh& mesh, const Annotations& annotations) {
    Shardings given;
    Status status;
    for (const auto& [pattern, text] : annotations) {
        auto named = [&, &pattern = pattern, &text = text](const Value* v, const std::string& name) {
            const auto sizes = divisible_sizes(*v);
            if (!status.ok() || !sizes || fnmatch(pattern.c_str(), name.c_str(), 0) != 0) return;
            auto read = parse_sharding(text, mesh, sizes->size());
            if (!read.ok())
                status = Error(read.error()).at(fmt::format("the annotation of {}", v->name()));
            else
                given.insert_or_assign(v, std::move(*read));
        };
        auto look = [&](const Value* v) { named(v, v->name()); };
        for (const auto& v : graph.inputs()) look(v.get());
        for (const auto& v : graph.constants()) look(v.get());
        for (const auto& n : graph.nodes())
            for (size_t i = 0; i < n->output_count(); ++i) look(n->output(i));
        for (size_t i = 0; i < graph.outputs().size(); ++i) named(graph.outputs()[i], graph.output_names()[i]);
    }
    TRY(std::move(status));
    return given;
}

Result<BlockTime> block_time(const TrainedBlock& block, const Machine& machine, const Cluster& cluster,
                             const BlockTimeOptions& options) {
    return BlockTiming(block, machine, cluster, options).run();
}

}  // namespace tessera::shard
