#include "shard/cost.h"

#include <algorithm>
#include <map>

#include "shard/divide.h"
#include "shard/report.h"

namespace tessera::shard {

int64_t moved_elements(const Placement& from, const Placement& to) {
    int64_t most = 0;
    for (size_t r = 0; r < to.size(); ++r) most = std::max(most, volume(to[r]) - volume(intersect(from[r], to[r])));
    return most;
}

int64_t combined_elements(const Placement& from, const Placement& to, int64_t ranks) {
    int64_t most = 0;
    for (size_t r = 0; r < to.size(); ++r) {
        const int64_t direct = (ranks - 1) * volume(to[r]);
        const int64_t twice = 2 * (ranks - 1) * ((volume(from[r]) + ranks - 1) / ranks);
        most = std::max(most, from[r] == to[r] ? std::min(direct, twice) : direct);
    }
    return most;
}

int64_t element_bytes(DType dtype) { return static_cast<int64_t>(dtype_bytes(dtype)); }

bool is_local(const Plan& plan, const MoveStep& move) {
    const Held &from = plan.held[size_t(move.from)], &to = plan.held[size_t(move.to)];
    return !from.sizes || contains(from.boxes, to.boxes);
}

std::string_view kind_of(const Plan& plan, const PlanStep& step) {
    if (auto* c = std::get_if<CombineStep>(&step))
        return plan.held[size_t(c->from)].boxes == plan.held[size_t(c->to)].boxes ? "all_reduce" : "reduce_scatter";
    auto* move = std::get_if<MoveStep>(&step);
    if (!move) return "compute";
    if (is_local(plan, *move)) return "slice";
    const Placement &from = plan.held[size_t(move->from)].boxes, &to = plan.held[size_t(move->to)].boxes;
    bool grows = true, blocks = true;  // of others, whole ones
    for (size_t r = 0; r < to.size(); ++r) {
        grows &= contains(to[r], from[r]);
        for (const Box& other : from) blocks &= contains(to[r], other) || volume(intersect(to[r], other)) == 0;
    }
    return !grows ? "all_to_all" : blocks ? "all_gather" : "halo_exchange";
}

int64_t received_bytes(const Plan& plan, const PlanStep& step) {
    if (auto* c = std::get_if<CombineStep>(&step)) {
        const Held &from = plan.held[size_t(c->from)], &to = plan.held[size_t(c->to)];
        const auto ranks = int64_t(plan.mesh.group(0, c->axes).size());
        return combined_elements(from.boxes, to.boxes, ranks) * element_bytes(from.dtype);
    }
    auto* move = std::get_if<MoveStep>(&step);
    if (!move || is_local(plan, *move)) return 0;
    const Held &from = plan.held[size_t(move->from)], &to = plan.held[size_t(move->to)];
    return moved_elements(from.boxes, to.boxes) * element_bytes(from.dtype);
}

std::vector<size_t> crossed_axes(const Placement& from, const Placement& to, const Mesh& mesh) {
    std::vector<size_t> axes;
    for (size_t a = 0; a < mesh.axes().size(); ++a) {
        if (mesh.size(a) < 2) continue;
        bool crosses = false;
        for (size_t r = 0; r < from.size() && !crosses; ++r)
            for (int64_t other : mesh.group(int64_t(r), {a})) {
                const Box piece = intersect(from[size_t(other)], to[r]);
                crosses |= volume(piece) > 0 && !contains(from[r], piece);
            }
        if (crosses) axes.push_back(a);
    }
    return axes;
}

double compute_seconds(double operations, double bytes, const Rates& rates) {
    return std::max(operations / rates.operations, bytes / rates.memory);
}

double move_seconds(const Placement& from, const Placement& to, int64_t element_bytes, const Mesh& mesh,
                    const Rates& rates) {
    const int64_t elements = moved_elements(from, to);
    if (elements == 0) return 0;
    const LinkRates link = rates.uniform() ? rates.link : rates.over(crossed_axes(from, to, mesh));
    return link.latency + double(elements * element_bytes) / link.bandwidth;
}

double combine_seconds(const Placement& from, const Placement& to, const std::vector<size_t>& axes,
                       int64_t element_bytes, const Mesh& mesh, const Rates& rates) {
    int64_t ranks = 1;
    for (size_t a : axes) ranks *= mesh.size(a);
    if (ranks == 1) return 0;
    const LinkRates link = rates.over(axes);
    return link.latency + double(combined_elements(from, to, ranks) * element_bytes) / link.bandwidth;
}

double step_seconds(const Plan& plan, const PlanStep& step, const Rates& rates) {
    if (auto* c = std::get_if<CombineStep>(&step)) {
        const Held &from = plan.held[size_t(c->from)], &to = plan.held[size_t(c->to)];
        return combine_seconds(from.boxes, to.boxes, c->axes, element_bytes(from.dtype), plan.mesh, rates);
    }
    if (auto* m = std::get_if<MoveStep>(&step)) {
        const Held &from = plan.held[size_t(m->from)], &to = plan.held[size_t(m->to)];
        return from.sizes ? move_seconds(from.boxes, to.boxes, element_bytes(from.dtype), plan.mesh, rates) : 0;
    }
    const auto& c = std::get<ComputeStep>(step);
    if (!c.body || c.ranges.empty()) return 0;
    double bytes = 0;
    auto add = [&](int id) {
        const Held& h = plan.held[size_t(id)];
        if (h.sizes) bytes += double(volume(h.boxes[0]) * element_bytes(h.dtype));
    };
    if (has_reduction(*c.body)) {
        for (const auto& in : c.inputs)
            if (in) add(*in);
        for (int id : c.results) add(id);
    }
    return compute_seconds(operations_in(work_of(*c.body, c.variables), c.ranges[0]), bytes, rates);
}

PlanCost cost_of(const Plan& plan, const Rates& rates) {
    PlanCost cost;
    std::map<std::pair<std::string, std::string>, CollectiveCost> kinds;
    for (const PlanStep& step : plan.steps) {
        const double seconds = step_seconds(plan, step, rates);
        if (std::holds_alternative<ComputeStep>(step)) {
            cost.compute += seconds;
        } else if (is_collective(plan, step)) {
            const std::string kind(kind_of(plan, step)), axes = axis_names(plan.mesh, collective_axes(plan, step));
            CollectiveCost& c = kinds.try_emplace({kind, axes}, CollectiveCost{kind, axes}).first->second;
            ++c.count;
            c.bytes += received_bytes(plan, step);
            c.seconds += seconds;
            cost.communicate += seconds;
        }
    }
    for (auto& [_, c] : kinds) cost.collectives.push_back(std::move(c));
    return cost;
}

}  // namespace tessera::shard
