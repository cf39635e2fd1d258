#include "shard/simulate/training_time.h"

#include <algorithm>

#include "train/optimizers.h"

namespace tessera::shard {
namespace {

class TrainingTiming {
  public:
    TrainingTiming(const TrainingBlocks& blocks, const TrainingShape& shape, const Cluster& cluster)
        : blocks_(blocks), shape_(shape), cluster_(cluster) {}

    Result<TrainingTime> run(const std::function<Result<double>(double parameters)>& update_seconds) {
        const int64_t p = shape_.pipeline.stages;
        v_ = shape_.pipeline.schedule == PipelineSchedule::Interleaved ? shape_.pipeline.chunks : 1;
        if (blocks_.layers % (p * v_) != 0)
            return Error(Code::E0501, "{} layers do not divide into {} stages of {}", blocks_.layers, p, v_)
                .hint("choose a pipeline whose stages and chunks divide the layers");
        per_chunk_ = blocks_.layers / (p * v_);
        std::vector<ChunkTime> chunks;
        for (int64_t c = 0; c < p * v_; ++c) chunks.push_back(chunk(c));
        time_.pipeline = TRY(pipeline_time(shape_.pipeline, chunks));
        for (int64_t s = 0; s < p; ++s) TRY(add_stage(s, update_seconds));
        const auto m = double(shape_.pipeline.microbatches);
        time_.all_parameters = sum([](const BlockTime& b) { return b.all_parameters; });
        time_.model_flops = m * sum([](const BlockTime& b) { return b.model_flops; });
        time_.product_flops =
            m / double(p) * sum([](const BlockTime& b) { return b.forward.product_flops + b.backward.product_flops; });
        return std::move(time_);
    }

  private:
    template <typename F>
    double sum(const F& f) const {
        return f(blocks_.embedding) + double(blocks_.layers) * f(blocks_.layer) + f(blocks_.head);
    }
    bool embeds(int64_t chunk) const { return chunk == 0; }
    bool ends(int64_t chunk) const { return chunk + 1 == shape_.pipeline.stages * v_; }

    template <typename F>
    double in_chunk(int64_t chunk, const F& f) const {
        double all = double(per_chunk_) * f(blocks_.layer);
        if (embeds(chunk)) all += f(blocks_.embedding);
        if (ends(chunk)) all += f(blocks_.head);
        return all;
    }

    ChunkTime chunk(int64_t c) const {
        ChunkTime t;
        t.forward = in_chunk(c, [](const BlockTime& b) { return b.forward.seconds; });
        t.backward = in_chunk(c, [](const BlockTime& b) { return b.backward.seconds; });
        const double send =
            collective_seconds(CollectiveKind::SendReceive, blocks_.layer.result, shape_.stage_pair, cluster_.network);
        if (!ends(c)) t.sends_forward = send;
        if (!embeds(c)) t.sends_backward = send;
        return t;
    }

    Status add_stage(int64_t s, const std::function<Result<double>(double)>& update_seconds) {
        TrainingTime::Stage stage;
        stage.layers = per_chunk_ * v_;
        double kept = 0, most = 0;
        for (int64_t k = 0; k < v_; ++k) {
            const int64_t c = k * shape_.pipeline.stages + s;
            stage.embeds |= embeds(c);
            stage.ends |= ends(c);
            stage.parameters += in_chunk(c, [](const BlockTime& b) { return b.parameters; });
            stage.memory.weights += in_chunk(c, [](const BlockTime& b) { return b.weights; });
            stage.forward += in_chunk(c, [](const BlockTime& b) { return b.forward.seconds; });
            stage.backward += in_chunk(c, [](const BlockTime& b) { return b.backward.seconds; });
            stage.computing += in_chunk(c, [](const BlockTime& b) { return b.forward.compute + b.backward.compute; });
            kept = std::max(kept, in_chunk(c, [](const BlockTime& b) { return b.kept; }));
        }
        for (const BlockTime* b : {&blocks_.layer, &blocks_.embedding, &blocks_.head})
            if (b == &blocks_.layer || (b == &blocks_.embedding ? stage.embeds : stage.ends))
                most = std::max({most, b->forward.activations, b->backward.activations});
        const double replicas = shape_.shard_optimizer ? double(shape_.replicas) : 1;
        stage.memory.gradients = kGradientBytes * stage.parameters;
        stage.memory.optimizer = kOptimizerBytes * stage.parameters / replicas;
        stage.memory.activations = double(time_.pipeline.in_flight[size_t(s)]) * kept + most;
        TRY(add_end(s, stage, TRY(update_seconds(stage.parameters / replicas))));
        time_.seconds = std::max(time_.seconds, stage.end);
        time_.stages.push_back(stage);
        return {};
    }

    // Gradients over the replicas, then the update, and with a divided optimizer the new weights to all of them.
    Status add_end(int64_t s, TrainingTime::Stage& stage, double update) {
        stage.reduced = kGradientBytes * stage.parameters;
        const auto time = [&](CollectiveKind kind, double bytes) {
            return collective_seconds(kind, bytes, shape_.replica_group, cluster_.network);
        };
        stage.reduction = shape_.shard_optimizer ? time(CollectiveKind::ReduceScatter, stage.reduced) +
                                                       time(CollectiveKind::AllGather, stage.memory.weights)
                                                 : time(CollectiveKind::AllReduce, stage.reduced);
        const PipelineEvent& last = time_.pipeline.stages[size_t(s)].back();
        // The gradients of a layer are there when its part of the last pass is done.
        stage.reduction_begin =
            shape_.overlap ? last.begin + (last.end - last.begin) / double(std::max<int64_t>(1, per_chunk_)) : last.end;
        stage.update = update;
        stage.update_begin = std::max(last.end, stage.reduction_begin + stage.reduction);
        stage.end = stage.update_begin + update;
        return {};
    }

    const TrainingBlocks& blocks_;
    const TrainingShape& shape_;
    const Cluster& cluster_;
    TrainingTime time_;
    int64_t per_chunk_ = 0, v_ = 1;
};

}  // namespace

Result<TrainingTime> training_time(const TrainingBlocks& blocks, const TrainingShape& shape, const Cluster& cluster,
                                   const std::function<Result<double>(double parameters)>& update_seconds) {
    return TrainingTiming(blocks, shape, cluster).run(update_seconds);
}

Result<double> adamw_seconds(double parameters, const Machine& machine, const Cluster& cluster) {
    auto graph = std::make_shared<Graph>("update");
    Builder b(*graph);
    const Type type(DType::f32, Shape{int64_t(parameters)});
    const Optimizer adamw = Optimizer::adamw();
    Value* parameter = graph->add_input("parameter", type);
    Value* gradient = graph->add_input("gradient", type);
    std::vector<Value*> slots;
    for (const std::string& name : slots_of(adamw)) slots.push_back(graph->add_input(name, type));
    std::map<StepNumber, Value*> numbers;
    for (StepNumber n : numbers_of(adamw))
        numbers[n] = graph->add_input(std::string(name_of(n)), Type(DType::f32, Shape{}));
    const Update made = build_update(
        b, adamw, parameter, gradient, slots, [&](StepNumber n) { return numbers.at(n); },
        [](Value* now, Value*) { return now; });
    TRY(b.status());
    graph->add_output(made.parameter, "new_parameter");
    for (size_t i = 0; i < made.slots.size(); ++i) graph->add_output(made.slots[i], fmt::format("new_slot{}", i));
    graph->add_output(b.cast(made.parameter, DType::bf16), "narrow");
    return TRY(graph_time(graph, machine, cluster.device)).seconds;
}

}  // namespace tessera::shard
