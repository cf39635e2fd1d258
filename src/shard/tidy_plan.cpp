#include "shard/tidy_plan.h"

#include <algorithm>

namespace tessera::shard {
namespace {

std::vector<int> uses_of(const Plan& plan) {
    std::vector<int> uses(plan.held.size());
    for (const PlanStep& s : plan.steps) for_each_read(s, [&](int id) { ++uses[size_t(id)]; });
    for (int id : plan.outputs) ++uses[size_t(id)];
    return uses;
}

bool is_used(const PlanStep& step, const std::vector<int>& uses) {
    if (auto* c = std::get_if<ComputeStep>(&step))
        return std::any_of(c->results.begin(), c->results.end(), [&](int id) { return uses[size_t(id)] > 0; });
    if (auto* m = std::get_if<MoveStep>(&step)) return uses[size_t(m->to)] > 0;
    return uses[size_t(std::get<CombineStep>(step).to)] > 0;
}

void drop_unused(Plan& plan) {
    std::vector<int> uses = uses_of(plan);
    std::vector<PlanStep> kept;
    for (size_t i = plan.steps.size(); i-- > 0;) {
        if (is_used(plan.steps[i], uses))
            kept.push_back(std::move(plan.steps[i]));
        else
            for_each_read(plan.steps[i], [&](int id) { --uses[size_t(id)]; });
    }
    std::reverse(kept.begin(), kept.end());
    plan.steps = std::move(kept);
}

bool reduce_at_once(Plan& plan) {
    const std::vector<int> uses = uses_of(plan);
    for (PlanStep& first : plan.steps) {
        auto* combine = std::get_if<CombineStep>(&first);
        if (!combine || uses[size_t(combine->to)] != 1) continue;
        for (size_t i = 0; i < plan.steps.size(); ++i) {
            auto* move = std::get_if<MoveStep>(&plan.steps[i]);
            if (!move || move->from != combine->to) continue;
            if (plan.held[size_t(move->to)].boxes != plan.held[size_t(combine->from)].boxes) continue;
            combine->to = move->to;
            plan.steps.erase(plan.steps.begin() + int64_t(i));
            return true;
        }
    }
    return false;
}

}  // namespace

void tidy_plan(Plan& plan) {
    drop_unused(plan);
    while (reduce_at_once(plan)) {
    }
}

}  // namespace tessera::shard
