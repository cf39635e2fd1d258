// Primitives for what processors have beside arithmetic: instructions on tiles, prefetching, overlapped iterations.
#include "kernel/ir/intrinsic.h"
#include "kernel/schedule/schedule.h"

namespace tessera {

Status Schedule::tensorize(const Loop& loop, std::string intrinsic) {
    Place place = TRY(find_loop(loop));
    if (!find_intrinsic(intrinsic)) {
        std::string all;
        for (const Intrinsic& i : all_intrinsics()) all += (all.empty() ? "" : ", ") + i.name;
        return Error(Code::E0602, "there is no intrinsic {}", intrinsic).hint("the declared intrinsics are: {}", all);
    }
    at(place).intrinsic = intrinsic;
    record("tensorize", {loop.name, std::move(intrinsic)});
    return {};
}

Result<size_t> Schedule::find_prefetched(std::string_view name, int buffer, const Loop& loop) const {
    size_t s = TRY(find_stage(name));
    Place place = TRY(find_loop(loop));
    if (place.stage != s) return Error(Code::E0602, "{} is not a loop of {}", loop.name, name);
    if (!reads_buffer(compute_.stages[s], buffer))
        return Error(Code::E0602, "{} does not read buffer {}", name, buffer);
    if (plans_[s].find(loop.name)->kind == LoopKind::Vector)
        return Error(Code::E0602, "{} is vectorized", loop.name).hint("prefetch in a loop outside it");
    return s;
}

Status Schedule::prefetch_next(std::string_view name, int buffer, const Loop& loop, const Loop& outer,
                               const Loop& part) {
    size_t s = TRY(find_prefetched(name, buffer, loop));
    TRY(find_loop(outer));
    TRY(find_loop(part));
    plans_[s].prefetches.push_back({buffer, loop.name, 1, outer.name, part.name});
    record("prefetch_next", {std::string(name), std::to_string(buffer), loop.name, outer.name, part.name});
    return {};
}

Status Schedule::prefetch(std::string_view name, int buffer, const Loop& loop, int64_t ahead) {
    size_t s = TRY(find_prefetched(name, buffer, loop));
    if (ahead < 1) return Error(Code::E0602, "expected a prefetch distance of at least 1 iteration, got {}", ahead);
    plans_[s].prefetches.push_back({buffer, loop.name, ahead});
    record("prefetch", {std::string(name), std::to_string(buffer), loop.name, std::to_string(ahead)});
    return {};
}

Status Schedule::pipeline(const Loop& loop, int stages) {
    Place place = TRY(find_loop(loop));
    if (stages < 2) return Error(Code::E0602, "expected a pipeline of at least 2 iterations in flight, got {}", stages);
    if (at(place).kind != LoopKind::Serial)
        return Error(Code::E0602, "{} is {}: only a serial loop can be pipelined", loop.name,
                     loop_kind_name(at(place).kind));
    bool any = false;
    for (const StagePlan& plan : plans_) {
        any |= plan.at == loop.name && !plan.after;
        if (plan.running == loop.name)
            return Error(Code::E0602, "an online reduction iterates over {}, so its iterations cannot overlap",
                         loop.name);
    }
    if (!any)
        return Error(Code::E0602, "no stage is computed in {}, so there is nothing to pipeline", loop.name)
            .hint("compute a producer there with compute_at");
    at(place).pipeline = stages;
    record("pipeline", {loop.name, std::to_string(stages)});
    return {};
}

Status Schedule::double_buffer(std::string_view name) {
    size_t s = TRY(find_stage(name));
    if (plans_[s].at.empty() || plans_[s].after)
        return Error(Code::E0602, "{} is not computed in a loop of its reader", name)
            .hint("place it there with compute_at");
    plans_[s].double_buffer = true;
    record("double_buffer", {std::string(name)});
    return {};
}

}  // namespace tessera
