#include "shard/cost.h"

#include <algorithm>

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

}  // namespace tessera::shard
