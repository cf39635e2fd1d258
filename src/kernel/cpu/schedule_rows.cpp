// Rows: reductions over the innermost axes, and what is computed from them row by row (softmax, layer norm).
#include <algorithm>

#include "base/check.h"
#include "kernel/cpu/padding.h"
#include "kernel/cpu/schedule_kinds.h"
#include "kernel/cpu/words.h"

namespace tessera {
namespace {}  // namespace

namespace {

// Do axes i and i + 1 of the list lie densely in all that the stage reads?
bool read_densely(const Schedule& s, const Stage& stage, const std::vector<ReduceAxis>& axes, size_t i) {
    const ReduceAxis &outer = axes[i], &inner = axes[i + 1];
    for (const Expr& load : loads_of(stage)) {
        auto a = stride_of(s, load, outer.var), b = stride_of(s, load, inner.var);
        if (!a || !b || !(*a == *b * inner.extent)) return false;
    }
    return !used_beside_loads(stage.value, outer.var) && !used_beside_loads(stage.value, inner.var);
}

// The groups of reduction axes that lie densely, each of which can be one.
std::vector<std::vector<int>> dense_reduction(const Schedule& s, const Stage& stage) {
    std::vector<std::vector<int>> groups;
    for (size_t i = 0; i < stage.reduce.size(); ++i) {
        if (i > 0 && read_densely(s, stage, stage.reduce, i - 1))
            groups.back().push_back(int(i));
        else
            groups.push_back({int(i)});
    }
    return groups;
}

}  // namespace

Expr length_of_run(const Schedule& s, const Stage& stage) {
    Expr length = 1;
    const std::vector<std::vector<int>> groups = dense_reduction(s, stage);
    for (int i : groups.back()) length = length * stage.reduce[size_t(i)].extent;
    return length;
}

namespace {

Status merge_reduction(Schedule& s, const std::string& name) {
    const Stage& stage = find_stage(s, name);
    std::vector<std::vector<int>> axes, groups = dense_reduction(s, stage);
    if (groups.size() == stage.reduce.size()) return {};
    for (size_t i = 0; i < stage.axes.size(); ++i) axes.push_back({int(i)});
    return s.merge_axes(name, axes, groups);
}

// How many elements are combined into one; nullopt where that is not known.
std::optional<int64_t> terms_of_sum(const Stage& stage) { return elements_of(stage.reduce).as_int(); }

// Few rows, or none: elements are combined in blocks, whose results are then combined. Blocks do not depend on the
// number of threads.
constexpr int64_t kTotalBlock = 1 << 14;

Status schedule_total(Schedule& s, const std::string& name, const CpuScheduleOptions& options) {
    if (options.threads > 1) TRY(s.set_scope(name, Scope::Global));
    TRY(merge_reduction(s, name));
    auto terms = terms_of_sum(find_stage(s, name));
    const Loop last = s.loops(name).back();
    auto extent = s.extent(last).as_int();
    std::vector<Loop> loops = s.loops(name);
    const bool one = loops.size() == 1;
    if ((terms && *terms <= kTotalBlock) || (one && extent && *extent <= kTotalBlock))
        return reduce_in_lanes(s, name, options, true);
    Loop parts = loops[0];
    if (one || s.extent(parts).as_int().value_or(INT64_MAX) > 256) {
        auto [blocks, in_block] = TRY(s.split(parts, one ? kTotalBlock : 64));
        parts = blocks;
    }
    const std::string partial = TRY(s.rfactor(parts));
    const std::string kept = TRY(s.cache_write(partial, Scope::Register));
    std::vector<Loop> rows = s.loops(kept);
    if (options.threads > 1) TRY(s.parallel(rows.back()));
    TRY(s.compute_at(partial, rows.back()));
    TRY(s.set_scope(partial, Scope::Register));
    TRY(reduce_in_lanes(s, partial, options, true));
    TRY(s.compute_root(kept));
    return reduce_in_lanes(s, name, options, true);
}

// Is this the sum of a few contiguous elements for each of many places? Then lanes are places.
bool sums_few(const Stage& stage, int64_t lanes) {
    auto terms = terms_of_sum(stage);
    if (!terms || *terms >= 2 * lanes || stage.axes.empty() || stage.reduce.size() != 1) return false;
    auto places = stage.axes.back().extent.as_int();
    return !places || *places >= lanes;
}

// Rows next to each other, both in the reduction and in what takes its results, are one axis.
Status merge_rows(Schedule& s, const std::string& sum, const std::string& out) {
    const Stage &stage = find_stage(s, sum), &last = find_stage(s, out);
    if (stage.axes.size() != last.axes.size() || stage.axes.size() < 2) return {};
    std::vector<std::vector<int>> groups{{0}};
    for (size_t i = 0; i + 1 < stage.axes.size(); ++i) {
        const auto &outer = last.axes[i], &inner = last.axes[i + 1];
        auto a = stride_of(s, last.buffer, last.store, outer.var), b = stride_of(s, last.buffer, last.store, inner.var);
        const bool dense = a && b && *a == *b * inner.extent && read_densely(s, stage, stage.axes, i) &&
                           read_densely(s, last, last.axes, i);
        if (dense)
            groups.back().push_back(int(i) + 1);
        else
            groups.push_back({int(i) + 1});
    }
    if (groups.size() == stage.axes.size()) return {};
    Schedule merged = s;
    TRY(merged.merge_axes(sum, groups));
    TRY(merged.merge_axes(out, groups));
    // Places that lie apart would be divided for, one by one.
    if (divides_by_open(find_stage(merged, sum)))
        for (const Expr& load : loads_of(stage)) {
            auto step = stride_of(s, load, stage.axes.back().var);
            if (!step || !(step->is_int(0) || step->is_int(1))) return {};
        }
    s = std::move(merged);
    return {};
}

// Axes of one element (kept dimensions) from number `first` on are part of those before them, or behind.
Status merge_units(Schedule& s, const std::string& out, size_t first) {
    const auto& axes = find_stage(s, out).axes;
    std::vector<std::vector<int>> groups;
    bool units = true;  // all of the last group so far, and it starts behind `first`
    for (size_t i = 0; i < axes.size(); ++i) {
        const bool unit = axes[i].extent.is_int(1);
        const bool joins = i > 0 && i >= first && (unit || units);
        if (!joins) groups.emplace_back();
        groups.back().push_back(int(i));
        units = unit && (joins ? units : i >= first);
    }
    return groups.size() == axes.size() ? Status() : s.merge_axes(out, groups);
}

bool reads_padding(const Schedule& s, const Stage& stage) {
    const std::vector<Expr> loads = loads_of(stage);
    return std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
        const Stage* writer = writer_of(s, load.node().slot);
        return writer && makes_padding(*writer);
    });
}

}  // namespace

Status reduce_in_lanes(Schedule& s, const std::string& name, const CpuScheduleOptions& options, bool apart) {
    const Stage stage = find_stage(s, name);
    std::vector<Loop> loops = s.loops(name);
    const Loop inner = loops.back();
    int64_t lanes = lanes_of(s, stage, options.machine);
    auto extent = s.extent(inner).as_int();
    // A short row fills a part of a register.
    constexpr int64_t kFewestLanes = 4;
    while (extent && lanes > kFewestLanes && *extent < lanes) lanes /= 2;
    if (lanes < 2 || (!apart && !reduces_along_lanes(s, stage)) || (extent && *extent < lanes)) {
        if (extent && *extent <= 16) TRY(s.unroll(inner));
        return {};
    }
    int64_t vectors = 4;
    while (vectors > 1 && extent && *extent < 2 * vectors * lanes) vectors /= 2;
    auto [iterations, part] = TRY(s.split(inner, vectors * lanes));
    std::string partial = TRY(s.rfactor(part));
    // partial[row.., part]: iterations outside, lanes inside.
    std::vector<Loop> outer = s.loops(name), own = s.loops(partial);
    std::optional<Loop> row;
    for (const Loop& l : outer)
        if (!s.reduces(l)) row = l;
    // Where there is no row, parallel loops may stand beside it, which share no registers.
    TRY(s.set_scope(partial, row || options.threads < 2 ? Scope::Register : Scope::Global));
    if (row) TRY(s.compute_at(partial, *row));
    std::vector<Loop> kept, reduced;
    for (const Loop& l : own) (s.reduces(l) ? reduced : kept).push_back(l);
    Loop lane_loop = kept.back();
    auto [vector_loop, lane] = TRY(s.split(lane_loop, lanes));
    std::vector<Loop> order = reduced;
    order.insert(order.end(), {vector_loop, lane});
    TRY(s.reorder(order));
    TRY(s.unroll(vector_loop));
    TRY(s.vectorize(lane));
    if (!extent || *extent % (vectors * lanes) || apart) TRY(s.loop_partition(reduced.back()));
    // The last of several blocks may be short, along whichever axis they are cut.
    for (size_t i = 0; apart && i + 1 < reduced.size(); ++i) TRY(s.loop_partition(reduced[i]));
    return s.vectorize(outer.back());
}

Result<std::vector<std::string>> schedule_rows(Schedule& s, const std::string& name, const std::set<std::string>& done,
                                               const CpuScheduleOptions& options) {
    std::string out = name;
    std::vector<std::string> members;
    if (!find_stage(s, name).reduce.empty()) {
        // A reduction that is a result itself: summed in registers, then stored.
        out = TRY(s.cache_write(name, Scope::Register));
        members.push_back(name);
        if (find_stage(s, name).axes.empty() && !find_stage(s, name).fold) {
            TRY(schedule_total(s, name, options));
            return members;
        }
    }
    RowGroup group = row_group(s, out, done);
    if (group.members.empty()) {
        Schedule merged = s;
        TRY(merge_units(merged, out, 0));
        group = row_group(merged, out, done);
        if (!group.members.empty()) s = std::move(merged);
    }
    for (const std::string& m : group.members) TRY(merge_reduction(s, m));
    if (group.members.empty()) {
        TRY(schedule_map(s, out, options));
        return members;
    }
    TRY(merge_units(s, out, group.axes));
    TRY(merge_dense_axes(s, out, group.axes));
    const size_t inner_axes = find_stage(s, out).axes.size() - group.axes;
    bool apart = false;  // lanes go along a reduction that is not contiguous, since there is nothing better
    if (group.members.size() == 1 && inner_axes == 0) {
        const std::string& member = group.members[0];
        const bool reduces = !find_stage(s, member).reduce.empty();
        const bool along = reduces && reduces_along_lanes(s, find_stage(s, member));
        if (reduces && !along && !reads_padding(s, find_stage(s, member))) TRY(merge_rows(s, member, out));
        group.axes = find_stage(s, out).axes.size();
        const Stage& only = find_stage(s, member);
        const int64_t lanes = lanes_of(s, only, options.machine);
        const ReduceAxis* last = last_larger_axis(only);
        const int64_t places = last ? last->extent.as_int().value_or(lanes) : 1;
        apart = !along && places < lanes && terms_of_sum(only).value_or(INT64_MAX) >= 8 * lanes;
        if (reduces && apart && TRY(schedule_few_columns(s, member, out, options))) return group.members;
        if (reduces && !apart && (!along || sums_few(only, lanes))) {
            if (along) TRY(merge_rows(s, member, out));
            TRY(schedule_window(s, member, out, options));
            return group.members;
        }
    }
    if (TRY(schedule_short_rows(s, out, group, options))) return group.members;
    double row = 0;
    for (const std::string& m : group.members) {
        const Stage& stage = find_stage(s, m);
        double elements = 1;
        for (const ReduceAxis& r : stage.reduce) elements *= double(r.extent.as_int().value_or(64));
        for (size_t i = group.axes; i < stage.axes.size(); ++i)
            elements *= double(stage.axes[i].extent.as_int().value_or(64));
        row += 4 * elements;
    }
    for (const std::string& m : group.members)
        if (!find_stage(s, m).reduce.empty() && reduces_along_lanes(s, find_stage(s, m)))
            TRY(turn_weights(s, m, find_stage(s, m).reduce.back().var));
    std::optional<Loop> at = TRY(make_tasks(s, out, group.axes, row, options));
    CHECK(at.has_value());
    for (auto m = group.members.rbegin(); m != group.members.rend(); ++m) {
        TRY(s.compute_at(*m, *at));
        const Stage& stage = find_stage(s, *m);
        TRY(s.set_scope(*m, stage.axes.size() == group.axes ? Scope::Register : Scope::Local));
    }
    for (const std::string& m : group.members) {
        if (find_stage(s, m).reduce.empty())
            TRY(vectorize_map(s, m, group.axes, options));
        else
            TRY(reduce_in_lanes(s, m, options, apart));
    }
    if (inner_axes > 0) {
        size_t first = s.loops(out).size() - inner_axes;
        TRY(vectorize_map(s, out, first, options));
    }
    return group.members;
}

}  // namespace tessera
