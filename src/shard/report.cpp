#include "shard/report.h"

#include <algorithm>

#include "shard/cost.h"

namespace tessera::shard {

std::vector<ValuePart> value_parts(const Plan& plan) {
    std::vector<ValuePart> parts;
    auto add = [&](const Value* v) {
        const auto found = plan.shardings.find(v);
        if (found == plan.shardings.end()) return;
        const Sizes sizes = *divisible_sizes(*v);
        int64_t all = 1, most = 0;
        for (int64_t n : sizes) all *= n;
        for (const Box& box : place(sizes, found->second, plan.mesh)) most = std::max(most, volume(box));
        const int64_t bytes = element_bytes(v->type().tensor().dtype);
        parts.push_back({v, all * bytes, most * bytes});
    };
    for (const auto& v : plan.graph->inputs()) add(v.get());
    for (const auto& v : plan.graph->constants()) add(v.get());
    for (const auto& n : plan.graph->nodes())
        for (size_t i = 0; i < n->output_count(); ++i) add(n->output(i));
    return parts;
}

bool is_collective(const Plan& plan, const PlanStep& step) {
    if (std::holds_alternative<CombineStep>(step)) return true;
    auto* move = std::get_if<MoveStep>(&step);
    return move && !is_local(plan, *move);
}

const Value* collected_value(const Plan& plan, const PlanStep& step) {
    if (auto* c = std::get_if<CombineStep>(&step)) return plan.held[size_t(c->to)].value;
    return plan.held[size_t(std::get<MoveStep>(step).to)].value;
}

std::vector<size_t> collective_axes(const Plan& plan, const PlanStep& step) {
    if (auto* c = std::get_if<CombineStep>(&step)) return c->axes;
    const auto& move = std::get<MoveStep>(step);
    const Placement &from = plan.held[size_t(move.from)].boxes, &to = plan.held[size_t(move.to)].boxes;
    return crossed_axes(from, to, plan.mesh);
}

int64_t weight_bytes(const Plan& plan, int64_t rank) {
    std::unordered_map<const Value*, std::vector<Box>> kept;
    std::vector<bool> stored;  // constants and what a rank cuts out of its own
    for (const Held& h : plan.held) stored.push_back(h.source && h.value->is_constant() && h.sizes);
    auto keep = [&](int id) {
        const Held& h = plan.held[size_t(id)];
        if (!stored[size_t(id)]) return;
        std::vector<Box>& boxes = kept[h.value];
        const Box& box = h.boxes[size_t(rank)];
        if (std::any_of(boxes.begin(), boxes.end(), [&](const Box& b) { return contains(b, box); })) return;
        std::erase_if(boxes, [&](const Box& b) { return contains(box, b); });
        boxes.push_back(box);
    };
    for (const PlanStep& step : plan.steps) {
        if (auto* c = std::get_if<ComputeStep>(&step)) {
            for (const auto& in : c->inputs)
                if (in) keep(*in);
        } else if (auto* move = std::get_if<MoveStep>(&step)) {
            if (is_local(plan, *move))
                stored[size_t(move->to)] = stored[size_t(move->from)];
            else
                keep(move->from);
        }
    }
    int64_t bytes = 0;
    for (const auto& [value, boxes] : kept)
        for (const Box& box : boxes) bytes += volume(box) * element_bytes(value->type().tensor().dtype);
    return bytes;
}

}  // namespace tessera::shard
