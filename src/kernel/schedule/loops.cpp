// Primitives on the loops of one stage.
#include <algorithm>

#include "kernel/ir/regions.h"
#include "kernel/schedule/schedule.h"

namespace tessera {

Result<std::pair<Loop, Loop>> Schedule::split_loop(const Loop& loop, int64_t amount, LoopRelation::Kind kind) {
    Place place = TRY(find_loop(loop));
    if (amount < 1) return Error(Code::E0602, "expected a split factor of at least 1, got {}", amount);
    StagePlan& plan = plans_[place.stage];
    LoopPlan& old = plan.loops[place.loop];
    if (old.kind != LoopKind::Serial)
        return Error(Code::E0602, "{} is already {}", loop.name, loop_kind_name(old.kind)).hint("split it first");
    if (stands_at(loop.name))
        return Error(Code::E0602, "a stage or an initialization is placed at {}", loop.name)
            .hint("apply split before compute_at");
    LoopPlan outer{.name = loop.name + ".o", .reduces = old.reduces},
        inner{.name = loop.name + ".i", .reduces = old.reduces};
    plan.relations.push_back({kind, loop.name, outer.name, inner.name, amount});
    std::pair<Loop, Loop> made{{outer.name}, {inner.name}};
    old = std::move(outer);
    plan.loops.insert(plan.loops.begin() + static_cast<ptrdiff_t>(place.loop) + 1, std::move(inner));
    return made;
}

Result<std::pair<Loop, Loop>> Schedule::split(const Loop& loop, int64_t factor) {
    std::pair<Loop, Loop> made = TRY(split_loop(loop, factor, LoopRelation::Kind::Split));
    record("split", {loop.name, std::to_string(factor)}, {made.first.name, made.second.name});
    return made;
}

Result<std::pair<Loop, Loop>> Schedule::split_parts(const Loop& loop, int64_t parts) {
    std::pair<Loop, Loop> made = TRY(split_loop(loop, parts, LoopRelation::Kind::SplitParts));
    record("split_parts", {loop.name, std::to_string(parts)}, {made.first.name, made.second.name});
    return made;
}

Result<std::pair<Loop, Loop>> Schedule::split_whole(const Loop& loop, int64_t factor) {
    Place place = TRY(find_loop(loop));
    if (!compute_.stages[place.stage].reduce.empty())
        return Error(Code::E0602, "{} would accumulate some elements twice", compute_.stages[place.stage].name)
            .hint("apply cache_write, and split the stage that copies the result");
    if (!plans_[place.stage].at.empty())
        return Error(Code::E0602, "{} is computed inside {}", compute_.stages[place.stage].name,
                     plans_[place.stage].at);
    if (!always(le(factor, extent(loop)), {}))
        return Error(Code::E0602, "{} has {} iterations, which may be fewer than {}", loop.name,
                     to_string(extent(loop)), factor);
    std::pair<Loop, Loop> made = TRY(split_loop(loop, factor, LoopRelation::Kind::SplitWhole));
    record("split_whole", {loop.name, std::to_string(factor)}, {made.first.name, made.second.name});
    return made;
}

Result<Loop> Schedule::fuse(const Loop& outer, const Loop& inner) {
    Place o = TRY(find_loop(outer));
    Place i = TRY(find_loop(inner));
    if (o.stage != i.stage || i.loop != o.loop + 1)
        return Error(Code::E0602, "{} is not directly inside {}", inner.name, outer.name)
            .hint("make them adjacent with reorder");
    StagePlan& plan = plans_[o.stage];
    LoopPlan &a = plan.loops[o.loop], &b = plan.loops[i.loop];
    if (a.reduces != b.reduces)
        return Error(Code::E0602, "{} is a reduction loop, but {} is not", (a.reduces ? a : b).name,
                     (a.reduces ? b : a).name);
    if (a.kind != LoopKind::Serial || b.kind != LoopKind::Serial)
        return Error(Code::E0602, "{} and {} are not both serial", a.name, b.name).hint("fuse them first");
    if (stands_at(a.name) || stands_at(b.name))
        return Error(Code::E0602, "a stage or an initialization is placed at {} or {}", a.name, b.name)
            .hint("apply fuse before compute_at");
    std::string name = a.name + "_" + b.name.substr(compute_.stages[o.stage].name.size() + 1);
    plan.relations.push_back({LoopRelation::Kind::Fuse, name, a.name, b.name});
    a = {.name = name, .reduces = a.reduces};
    plan.loops.erase(plan.loops.begin() + static_cast<ptrdiff_t>(i.loop));
    record("fuse", {outer.name, inner.name}, {name});
    return Loop{name};
}

Status Schedule::reorder(const std::vector<Loop>& order) {
    std::vector<size_t> places;
    size_t stage = 0;
    for (const Loop& loop : order) {
        Place place = TRY(find_loop(loop));
        if (!places.empty() && place.stage != stage)
            return Error(Code::E0602, "{} and {} belong to different stages", order[0].name, loop.name);
        if (std::find(places.begin(), places.end(), place.loop) != places.end())
            return Error(Code::E0602, "{} is named twice", loop.name);
        stage = place.stage;
        places.push_back(place.loop);
    }
    std::vector<std::string> names;
    std::vector<LoopPlan> moved;
    for (size_t p : places) {
        moved.push_back(plans_[stage].loops[p]);
        names.push_back(moved.back().name);
    }
    std::sort(places.begin(), places.end());
    for (size_t i = 0; i < places.size(); ++i) plans_[stage].loops[places[i]] = std::move(moved[i]);
    record("reorder", std::move(names));
    return {};
}

Result<std::vector<Loop>> Schedule::tile(const Loop& a, const Loop& b, int64_t fa, int64_t fb) {
    Place p = TRY(find_loop(a));
    Place q = TRY(find_loop(b));
    if (p.stage != q.stage || q.loop != p.loop + 1)
        return Error(Code::E0602, "{} is not directly inside {}", b.name, a.name)
            .hint("make them adjacent with reorder");
    Schedule before = *this;
    auto tiled = [&]() -> Result<std::vector<Loop>> {
        auto [ao, ai] = TRY(split_loop(a, fa, LoopRelation::Kind::Split));
        auto [bo, bi] = TRY(split_loop(b, fb, LoopRelation::Kind::Split));
        std::vector<Loop> order{ao, bo, ai, bi};
        TRY(reorder(order));
        return order;
    };
    Result<std::vector<Loop>> made = tiled();
    if (!made) {
        *this = std::move(before);
        return made;
    }
    trace_ = std::move(before.trace_);
    std::vector<std::string> names;
    for (const Loop& l : *made) names.push_back(l.name);
    record("tile", {a.name, b.name, std::to_string(fa), std::to_string(fb)}, std::move(names));
    return made;
}

namespace {

Status must_be_serial(const LoopPlan& loop) {
    if (loop.kind == LoopKind::Serial) return {};
    return Error(Code::E0602, "{} is already {}", loop.name, loop_kind_name(loop.kind));
}

}  // namespace

Status Schedule::unroll(const Loop& loop) {
    Place place = TRY(find_loop(loop));
    TRY(must_be_serial(at(place)));
    if (plans_[place.stage].at.empty() && !extent(loop).as_int())
        return Error(Code::E0602, "the extent of {}, {}, is not constant", loop.name, to_string(extent(loop)))
            .hint("split it by a constant, and unroll the inner loop");
    at(place).kind = LoopKind::Unrolled;
    record("unroll", {loop.name});
    return {};
}

Status Schedule::vectorize(const Loop& loop) {
    Place place = TRY(find_loop(loop));
    TRY(must_be_serial(at(place)));
    if (at(place).reduces && compute_.stages[place.stage].fold)
        return Error(Code::E0602, "each iteration of {} needs the result of the previous one", loop.name);
    if (plans_[place.stage].at.empty() && !extent(loop).as_int())
        return Error(Code::E0602, "the extent of {}, {}, is not constant", loop.name, to_string(extent(loop)))
            .hint("split it by a constant, and vectorize the inner loop");
    for (const StagePlan& other : plans_)
        if (other.at == loop.name)
            return Error(Code::E0602, "another stage is computed inside {}", loop.name)
                .hint("only the innermost loop, or one above unrolled loops, can be vectorized");
    at(place).kind = LoopKind::Vector;
    record("vectorize", {loop.name});
    return {};
}

Status Schedule::parallel(const Loop& loop) {
    Place place = TRY(find_loop(loop));
    TRY(must_be_serial(at(place)));
    if (at(place).reduces)
        return Error(Code::E0602, "{} is a reduction loop: its iterations accumulate into the same elements", loop.name)
            .hint("rfactor it, and make the partial results' loop parallel");
    if (!plans_[place.stage].at.empty())
        return Error(Code::E0602, "{} is computed inside {}", compute_.stages[place.stage].name, plans_[place.stage].at)
            .hint("make the outermost loop of that nest parallel");
    if (place.loop != 0)
        return Error(Code::E0602, "{} is inside {}", loop.name, plans_[place.stage].loops[0].name)
            .hint("only the outermost loop of a nest can be parallel: apply reorder or fuse first");
    at(place).kind = LoopKind::Parallel;
    record("parallel", {loop.name});
    return {};
}

Status Schedule::bind(const Loop& loop, std::string axis) {
    Place place = TRY(find_loop(loop));
    TRY(must_be_serial(at(place)));
    if (at(place).reduces)
        return Error(Code::E0602, "{} is a reduction loop: its iterations accumulate into the same elements", loop.name)
            .hint("rfactor it, and bind the partial results' loop");
    at(place).kind = LoopKind::Bound;
    at(place).axis = axis;
    record("bind", {loop.name, std::move(axis)});
    return {};
}

Status Schedule::annotate(const Loop& loop, std::string key, int64_t value) {
    Place place = TRY(find_loop(loop));
    at(place).notes.insert_or_assign(key, value);
    record("annotate", {loop.name, std::move(key), std::to_string(value)});
    return {};
}

Status Schedule::loop_partition(const Loop& loop) {
    Place place = TRY(find_loop(loop));
    at(place).partition = true;
    record("loop_partition", {loop.name});
    return {};
}

Status Schedule::fission(const Loop& loop) {
    Place place = TRY(find_loop(loop));
    TRY(must_be_serial(at(place)));
    if (at(place).reduces)
        return Error(Code::E0602, "{} is a reduction loop: each statement needs results of the same iteration",
                     loop.name);
    at(place).fission = true;
    record("fission", {loop.name});
    return {};
}

Status Schedule::skew(const Loop& outer, const Loop& inner, int64_t factor) {
    Place o = TRY(find_loop(outer));
    Place i = TRY(find_loop(inner));
    if (o.stage != i.stage || i.loop <= o.loop)
        return Error(Code::E0602, "{} is not inside {}", inner.name, outer.name);
    if (factor < 1) return Error(Code::E0602, "expected a skew factor of at least 1, got {}", factor);
    TRY(must_be_serial(at(o)));
    TRY(must_be_serial(at(i)));
    if (at(o).reduces != at(i).reduces)
        return Error(Code::E0602, "only one of {} and {} is a reduction loop", outer.name, inner.name);
    StagePlan& plan = plans_[o.stage];
    if (stands_at(inner.name))
        return Error(Code::E0602, "a stage or an initialization is placed at {}", inner.name)
            .hint("apply skew before compute_at");
    std::string name = inner.name + ".skewed";
    plan.relations.push_back({LoopRelation::Kind::Skew, name, outer.name, inner.name, factor});
    plan.loops[i.loop] = {.name = name, .reduces = plan.loops[i.loop].reduces};
    record("skew", {outer.name, inner.name, std::to_string(factor)}, {name});
    return {};
}

}  // namespace tessera
