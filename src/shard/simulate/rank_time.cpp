#include "shard/simulate/rank_time.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "shard/report.h"

namespace tessera::shard {
namespace {

CollectiveKind collective_of(std::string_view kind) {
    if (kind == "all_reduce") return CollectiveKind::AllReduce;
    if (kind == "reduce_scatter") return CollectiveKind::ReduceScatter;
    if (kind == "all_gather") return CollectiveKind::AllGather;
    if (kind == "all_to_all") return CollectiveKind::AllToAll;
    return CollectiveKind::SendReceive;  // halos go to neighbours
}

std::vector<int> read_by(const Segment& s) { return s.inputs; }
std::vector<int> read_by(const MoveStep& s) { return {s.from}; }
std::vector<int> read_by(const CombineStep& s) { return {s.from}; }
std::vector<int> read_by(const FinishStage&) { return {}; }
std::vector<int> made_by(const FinishStage&) { return {}; }
std::vector<int> read_by(const Wire&) { return {}; }
std::vector<int> made_by(const Wire&) { return {}; }
std::vector<int> made_by(const Segment& s) { return s.outputs; }
std::vector<int> made_by(const MoveStep& s) { return {s.to}; }
std::vector<int> made_by(const CombineStep& s) { return {s.to}; }

class RankTiming {
  public:
    RankTiming(const Plan& plan, const Machine& machine, const Cluster& cluster, const RankTimeOptions& options)
        : plan_(plan), machine_(machine), cluster_(cluster), options_(options) {}

    Result<RankTime> run() {
        const LocalProgram program = TRY(local_program(plan_, 0));
        for (size_t i = 0; i < program.stages.size(); ++i) {
            RankEvent event;
            if (auto* segment = std::get_if<Segment>(&program.stages[i]))
                event = TRY(segment_event(i, *segment));
            else if (auto* move = std::get_if<MoveStep>(&program.stages[i]))
                event = collective_event(*move);
            else if (auto* combine = std::get_if<CombineStep>(&program.stages[i]))
                event = collective_event(*combine);
            else {  // whoever reads a collective's result waits for it
                scratch_.push_back(0);
                continue;
            }
            place(std::move(event), program.stages[i]);
        }
        add_memory(program);
        return std::move(time_);
    }

  private:
    const Held& held(int id) const { return plan_.held[size_t(id)]; }

    Result<RankEvent> segment_event(size_t stage, const Segment& segment) {
        GraphTime graph = TRY(graph_time(segment.graph, machine_, cluster_.device));
        RankEvent e{.name = fmt::format("segment {}", stage), .collective = {}, .seconds = graph.seconds};
        if (!graph.kernels.empty()) {
            const auto longest = std::max_element(graph.kernels.begin(), graph.kernels.end(),
                                                  [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
            e.name += ": " + longest->label;
        }
        if (options_.measured) e.seconds = TRY(options_.measured(stage, segment));
        e.flops = graph.product_flops;
        for (const KernelTime& k : graph.kernels) e.bytes += k.bytes;
        e.kernels = std::move(graph.kernels);
        scratch_.push_back(graph.scratch);
        return e;
    }

    template <typename S>
    RankEvent collective_event(const S& step) {
        const PlanStep as_step = step;
        const CollectiveKind kind = collective_of(kind_of(plan_, as_step));
        RankEvent e{.name = fmt::format("{} {}", kind_of(plan_, as_step), held(step.to).value->name()),
                    .collective = kind};
        e.axes = collective_axes(plan_, as_step);
        e.group = options_.group ? options_.group(e.axes) : group_shape(cluster_.network, plan_.mesh, e.axes);
        const auto n = double(std::max<int64_t>(2, members(e.group)));
        const auto received = double(received_bytes(plan_, as_step));
        if (kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter)
            e.bytes = part_bytes(held(step.from), 0);
        else
            e.bytes = kind == CollectiveKind::SendReceive ? received : received * n / (n - 1);
        e.seconds = collective_seconds(kind, e.bytes, e.group, cluster_.network);
        scratch_.push_back(0);
        return e;
    }

    // In program order, computation and communication each one after the other.
    template <typename Stage>
    void place(RankEvent event, const Stage& stage) {
        const auto ids = std::visit([](const auto& s) { return std::pair(read_by(s), made_by(s)); }, stage);
        double ready = 0;
        for (int id : ids.first)
            if (auto at = maker_.find(id); at != maker_.end()) {
                event.after.push_back(at->second);
                const RankEvent& before = time_.events[at->second];
                ready = std::max(ready, before.begin + before.seconds);
            }
        double& own = event.collective && options_.overlap ? network_free_ : device_free_;
        event.begin = std::max(ready, own);
        own = event.begin + event.seconds;
        time_.seconds = std::max(time_.seconds, own);
        (event.collective ? time_.communication : time_.compute) += event.seconds;
        time_.product_flops += event.flops;
        for (int id : ids.second) maker_[id] = time_.events.size();
        time_.events.push_back(std::move(event));
    }

    // What is held lives from the stage that makes it to the last that reads it; outputs to the end.
    void add_memory(const LocalProgram& program) {
        const size_t count = program.stages.size();
        std::unordered_map<int, std::pair<size_t, size_t>> lives;
        std::set<int> kept;
        for (size_t i = 0; i < plan_.inputs.size(); ++i) {
            const int id = plan_.inputs[i];
            if (options_.is_weight(*plan_.graph->inputs()[i])) {
                kept.insert(id);
                if (!held(id).value->uses().empty()) time_.weights += part_bytes(held(id), 0);
            } else if (!held(id).value->uses().empty()) {
                lives[id] = {0, 0};
            }
        }
        time_.weights += double(constant_bytes(program));
        std::vector<double> change(count + 2);
        for (size_t i = 0; i < count; ++i) {
            const auto ids =
                std::visit([](const auto& s) { return std::pair(read_by(s), made_by(s)); }, program.stages[i]);
            for (int id : ids.first)
                if (!kept.contains(id)) lives.try_emplace(id, i, i).first->second.second = i;
            // A segment's own outputs are among its scratch.
            const bool segment = std::holds_alternative<Segment>(program.stages[i]);
            for (int id : ids.second) lives.try_emplace(id, i + size_t(segment), i + size_t(segment));
            change[i] += scratch_[i];
            change[i + 1] -= scratch_[i];
        }
        for (int id : plan_.outputs)
            if (auto at = lives.find(id); at != lives.end()) at->second.second = count;
        for (const auto& [id, life] : lives) {
            const double bytes = part_bytes(held(id), 0);
            change[life.first] += bytes;
            change[std::min(std::max(life.first, life.second), count) + 1] -= bytes;
        }
        double now = 0;
        for (double c : change) time_.activations = std::max(time_.activations, now += c);
    }

    const Plan& plan_;
    const Machine& machine_;
    const Cluster& cluster_;
    const RankTimeOptions& options_;
    RankTime time_;
    std::unordered_map<int, size_t> maker_;  // by what is held: the event
    std::vector<double> scratch_;            // by stage
    double device_free_ = 0, network_free_ = 0;
};

}  // namespace

double part_bytes(const Held& h, int64_t rank) {
    if (!h.sizes) return 0;
    return double(volume(h.boxes[size_t(rank)])) * double(element_bytes(h.dtype));
}

Result<RankTime> rank_time(const Plan& plan, const Machine& machine, const Cluster& cluster,
                           const RankTimeOptions& options) {
    return RankTiming(plan, machine, cluster, options).run();
}

}  // namespace tessera::shard
