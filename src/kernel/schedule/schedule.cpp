#include "kernel/schedule/schedule.h"

#include <algorithm>

#include "base/check.h"
#include "base/nearest.h"

namespace tessera {

Schedule::Schedule(Compute compute) : compute_(std::move(compute)), start_(compute_) {
    for (const Stage& stage : compute_.stages) plans_.push_back(plain_plan(stage));
}

std::vector<Loop> Schedule::loops(std::string_view stage) const {
    std::vector<Loop> loops;
    for (size_t i = 0; i < plans_.size(); ++i)
        if (compute_.stages[i].name == stage)
            for (const LoopPlan& loop : plans_[i].loops) loops.push_back({loop.name});
    return loops;
}

Expr Schedule::extent(const Loop& loop) const {
    Result<Place> place = find_loop(loop);
    CHECK(place.ok(), "no loop {}", loop.name);
    const Stage& stage = compute_.stages[place->stage];
    std::vector<Expr> extents, reduce_extents;
    for (const ReduceAxis& axis : stage.axes) extents.push_back(axis.extent);
    for (const ReduceAxis& axis : stage.reduce) reduce_extents.push_back(axis.extent);
    return derive_loops(stage, plans_[place->stage], extents, reduce_extents).extents[place->loop];
}

bool Schedule::reduces(const Loop& loop) const {
    Result<Place> place = find_loop(loop);
    CHECK(place.ok(), "no loop {}", loop.name);
    return plans_[place->stage].loops[place->loop].reduces;
}

Result<size_t> Schedule::find_stage(std::string_view name) const {
    std::string all;
    for (size_t i = 0; i < compute_.stages.size(); ++i) {
        if (compute_.stages[i].name == name) return i;
        all += (all.empty() ? "" : ", ") + compute_.stages[i].name;
    }
    return Error(Code::E0602, "there is no stage {}", name).hint("the stages are: {}", all);
}

Result<Schedule::Place> Schedule::find_loop(const Loop& loop) const {
    std::string all;
    for (size_t s = 0; s < plans_.size(); ++s) {
        size_t i = plans_[s].position(loop.name);
        if (i < plans_[s].loops.size()) return Place{s, i};
        if (!loop.name.starts_with(compute_.stages[s].name + ".")) continue;
        for (const LoopPlan& l : plans_[s].loops) all += (all.empty() ? "" : ", ") + l.name;
    }
    Error error(Code::E0602, "there is no loop {}", loop.name);
    if (all.empty()) return error;
    return std::move(error).hint("the stage's loops are now: {}", all);
}

std::optional<size_t> Schedule::writer(int buffer) const {
    for (size_t i = 0; i < compute_.stages.size(); ++i)
        if (compute_.stages[i].buffer == buffer) return i;
    return std::nullopt;
}

std::vector<size_t> Schedule::readers(int buffer) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < compute_.stages.size(); ++i)
        if (compute_.stages[i].buffer != buffer && reads_buffer(compute_.stages[i], buffer)) found.push_back(i);
    return found;
}

bool Schedule::inside(size_t stage, const Place& loop) const {
    if (stage == loop.stage) return true;
    for (size_t steps = 0; steps <= plans_.size(); ++steps) {
        if (plans_[stage].at.empty()) return false;
        Result<Place> host = find_loop({plans_[stage].at});
        if (!host) return false;
        if (host->stage == loop.stage) return host->loop >= loop.loop;
        stage = host->stage;
    }
    return false;
}

bool Schedule::hosts(size_t stage) const {
    return std::any_of(plans_.begin(), plans_.end(), [&](const StagePlan& plan) {
        return !plan.at.empty() && plans_[stage].position(plan.at) < plans_[stage].loops.size();
    });
}

bool Schedule::stands_at(const std::string& loop) const {
    return std::any_of(plans_.begin(), plans_.end(), [&](const StagePlan& plan) {
        return plan.at == loop || plan.init_at == loop || plan.running == loop;
    });
}

std::string Schedule::fresh_stage_name(std::string name) const {
    auto taken = [&](const std::string& n) {
        return std::any_of(compute_.stages.begin(), compute_.stages.end(),
                           [&](const Stage& s) { return s.name == n; }) ||
               std::any_of(compute_.buffers.begin(), compute_.buffers.end(),
                           [&](const Buffer& b) { return b.name == n; });
    };
    if (!taken(name)) return name;
    int i = 1;
    while (taken(name + std::to_string(i))) ++i;
    return name + std::to_string(i);
}

size_t Schedule::insert_stage(size_t before, Stage stage) {
    plans_.insert(plans_.begin() + static_cast<ptrdiff_t>(before), plain_plan(stage));
    compute_.stages.insert(compute_.stages.begin() + static_cast<ptrdiff_t>(before), std::move(stage));
    return before;
}

int Schedule::add_buffer(std::string name, DType dtype, std::vector<Expr> shape) {
    compute_.buffers.push_back({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)});
    return static_cast<int>(compute_.buffers.size() - 1);
}

void Schedule::redirect(size_t stage, int from, int to) {
    Stage& s = compute_.stages[stage];
    s.value = rewrite(s.value, [&](const Expr& e) {
        return e.is(ExprKind::Load) && e.node().slot == from ? load(to, e.dtype(), e.args()) : e;
    });
}

Status Schedule::untouched(size_t stage, std::string_view primitive) const {
    const Stage& s = compute_.stages[stage];
    if (!plans_[stage].relations.empty())
        return Error(Code::E0602, "{}: the loops of {} are already split or fused", primitive, s.name)
            .hint("it changes the axes of a stage: apply it before split, fuse and tile");
    if (hosts(stage))
        return Error(Code::E0602, "{}: other stages are computed in the loops of {}", primitive, s.name)
            .hint("it changes the axes of a stage: apply it before compute_at");
    if (s.fold || !plans_[stage].running.empty())
        return Error(Code::E0602, "{}: {} is part of an online reduction", primitive, s.name)
            .hint("apply it before online");
    return {};
}

void Schedule::record(std::string primitive, std::vector<std::string> args, std::vector<std::string> results) {
    trace_.push_back({std::move(primitive), std::move(args), std::move(results)});
}

}  // namespace tessera
