#include "runtime/collectives/run_local.h"

#include <unordered_map>
#include <unordered_set>

#include "graph/evaluate/evaluate.h"
#include "runtime/collectives/collect.h"

namespace tessera::shard {
namespace {

// What a stage reads.
std::vector<int> reads(const Wire& w) {
    std::vector<int> ids;
    if (w.from >= 0) ids.push_back(w.from);
    for (const auto& [rank, id] : w.sends) ids.push_back(id);
    return ids;
}
std::vector<int> reads(const Segment& s) { return s.inputs; }
std::vector<int> reads(const MoveStep& s) { return {s.from}; }
std::vector<int> reads(const CombineStep& s) { return {s.from}; }
std::vector<int> reads(const FinishStage&) { return {}; }

class LocalRun {
  public:
    LocalRun(const Plan& plan, Transport& transport, const RunSegment& segment)
        : plan_(plan), transport_(transport), segment_(segment) {}

    Status take(std::vector<Datum> inputs) {
        for (size_t i = 0; i < inputs.size(); ++i)
            has_[plan_.inputs[i]] = TRY(input_part(plan_, i, inputs[i], transport_.rank()));
        return {};
    }

    Status run(size_t stage, const Segment& s) {
        std::vector<Datum> inputs;
        for (int id : s.inputs) inputs.push_back(has_.at(id));
        std::vector<Datum> outputs = TRY(segment_(stage, inputs));
        for (size_t i = 0; i < outputs.size(); ++i) has_[s.outputs[i]] = std::move(outputs[i]);
        return {};
    }
    Status run(size_t, const MoveStep& s) {
        under_way_[s.to] = TRY(start_move(plan_, s, has_.at(s.from).tensor(), transport_));
        return {};
    }
    Status run(size_t, const CombineStep& s) {
        under_way_[s.to] = TRY(start_combine(plan_, s, has_.at(s.from).tensor(), transport_));
        return {};
    }
    Status run(size_t, const FinishStage& s) {
        auto collecting = under_way_.extract(s.made);
        has_[s.made] = TRY(finish(collecting.mapped(), transport_));
        return {};
    }

    Status run(size_t, const Wire&) {
        CHECK(false, "the program exchanges buffers");
        return {};
    }

    void release(const std::vector<int>& ids) {
        for (int id : ids) has_.erase(id);
    }

    std::vector<Datum> outputs() const {
        std::vector<Datum> out;
        for (int id : plan_.outputs) out.push_back(has_.at(id));
        return out;
    }

  private:
    const Plan& plan_;
    Transport& transport_;
    const RunSegment& segment_;
    std::unordered_map<int, Datum> has_;
    std::unordered_map<int, Collecting> under_way_;
};

}  // namespace

std::vector<std::vector<int>> last_reads(const Plan& plan, const LocalProgram& program) {
    std::vector<std::vector<int>> last(program.stages.size());
    std::unordered_set<int> later(plan.outputs.begin(), plan.outputs.end());
    for (size_t i = last.size(); i-- > 0;)
        for (int id : std::visit([](const auto& stage) { return reads(stage); }, program.stages[i]))
            if (later.insert(id).second) last[i].push_back(id);
    return last;
}

Result<Datum> input_part(const Plan& plan, size_t input, const Datum& whole, int64_t rank) {
    const Held& h = plan.held[size_t(plan.inputs[input])];
    if (!h.sizes) return whole;
    const Tensor& all = whole.tensor();
    const Box& own = h.boxes[size_t(rank)];
    if (plan.in_parts[input]) {
        CHECK(all.sizes() == lengths(own), "a rank is given another part than its own");
        return whole;
    }
    if (all.sizes() != *h.sizes)
        return Error(Code::E0405, "input {} has sizes {}, and the program was partitioned for {}", h.value->name(),
                     tessera::to_string(all.sizes()), tessera::to_string(*h.sizes));
    Box box;
    for (int64_t n : *h.sizes) box.push_back({0, n});
    return Datum(TRY(cut(all, box, own)));
}

RunSegment by_evaluator(const LocalProgram& program) {
    return [&program](size_t stage, const std::vector<Datum>& inputs) {
        const Segment& s = std::get<Segment>(program.stages[stage]);
        Inputs named;
        for (size_t i = 0; i < inputs.size(); ++i) named[s.graph->inputs()[i]->name()] = inputs[i];
        return evaluate(*s.graph, named);
    };
}

Result<std::vector<Datum>> run_local(const Plan& plan, const LocalProgram& program, std::vector<Datum> inputs,
                                     Transport& transport, const RunSegment& segment) {
    LocalRun run(plan, transport, segment);
    Status status = run.take(std::move(inputs));
    const auto last = last_reads(plan, program);
    for (size_t i = 0; i < program.stages.size() && status.ok(); ++i) {
        status = std::visit([&](const auto& stage) { return run.run(i, stage); }, program.stages[i]);
        run.release(last[i]);
    }
    if (!status.ok()) {
        transport.stop(status.error());
        return status.error();
    }
    return run.outputs();
}

}  // namespace tessera::shard
