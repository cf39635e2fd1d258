// Rows: reductions over the innermost axes, and what is computed from them row by row (softmax, layer norm).
#include <algorithm>

#include "base/check.h"
#include "kernel/cpu/schedule_kinds.h"

namespace tessera {
namespace {

// Do the first `count` indices of each load of `buffer` name the reader's first axes, in order?
bool reads_own_row(const Stage& reader, int buffer, size_t count) {
    std::vector<Expr> loads = loads_of(reader, buffer);
    return reader.axes.size() >= count && std::all_of(loads.begin(), loads.end(), [&](const Expr& load) {
               for (size_t d = 0; d < count; ++d)
                   if (load.args().size() <= d || load.arg(d) != reader.axes[d].var) return false;
               return true;
           });
}

}  // namespace

RowGroup row_group(const Schedule& s, const std::string& out, const std::set<std::string>& done) {
    std::set<std::string> in{out};
    RowGroup group;
    const auto& stages = s.compute().stages;
    for (size_t i = stages.size(); i-- > 0;) {
        const Stage& stage = stages[i];
        if (done.count(stage.name) || in.count(stage.name) || size_t(stage.buffer) < s.compute().params) continue;
        std::vector<std::string> readers = readers_of(s, stage.buffer);
        if (readers.empty() || !std::all_of(readers.begin(), readers.end(), [&](auto& r) { return in.count(r) > 0; }))
            continue;
        in.insert(stage.name);
        group.members.insert(group.members.begin(), stage.name);
    }
    // The rows are those of the reduction with the fewest axes; all others must keep to them.
    group.axes = find_stage(s, out).axes.size();
    for (const std::string& name : group.members) {
        const Stage& stage = find_stage(s, name);
        if (!stage.reduce.empty()) group.axes = std::min(group.axes, stage.axes.size());
    }
    auto keeps = [&](const std::string& name) {
        const Stage& stage = find_stage(s, name);
        if (stage.axes.size() < group.axes) return false;
        for (const std::string& r : readers_of(s, stage.buffer))
            if (!reads_own_row(find_stage(s, r), stage.buffer, group.axes)) return false;
        return true;
    };
    if (group.axes == 0 || !std::all_of(group.members.begin(), group.members.end(), keeps)) group.members.clear();
    return group;
}

bool reduces_along_lanes(const Schedule& s, const Stage& stage) {
    bool along = false, across = false;
    for (const Expr& load : loads_of(stage)) {
        auto r = stride_of(s, load, stage.reduce.back().var);
        if (r && r->is_int(0)) continue;  // the same for all that is combined
        along |= r && r->is_int(1);
        if (stage.axes.empty() || stage.axes.back().extent.is_int(1)) continue;
        auto a = stride_of(s, load, stage.axes.back().var);
        across |= a && a->is_int(1);
    }
    return along && !across;
}

Status reduce_in_lanes(Schedule& s, const std::string& name, const ScheduleOptions& options) {
    const Stage stage = find_stage(s, name);
    std::vector<Loop> loops = s.loops(name);
    const Loop inner = loops.back();
    const int64_t lanes = lanes_of(s, stage, options.machine);
    auto extent = s.extent(inner).as_int();
    if (lanes < 2 || !reduces_along_lanes(s, stage) || (extent && *extent < 2 * lanes)) {
        if (extent && *extent <= 16) TRY(s.unroll(inner));
        return {};
    }
    int64_t vectors = 4;
    while (vectors > 1 && extent && *extent < 2 * vectors * lanes) vectors /= 2;
    auto [iterations, part] = TRY(s.split(inner, vectors * lanes));
    std::string partial = TRY(s.rfactor(part));
    TRY(s.set_scope(partial, Scope::Register));
    // partial[row.., part]: iterations outside, lanes inside.
    std::vector<Loop> outer = s.loops(name), own = s.loops(partial);
    std::optional<Loop> row;
    for (const Loop& l : outer)
        if (!s.reduces(l)) row = l;
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
    if (!extent || *extent % (vectors * lanes)) TRY(s.loop_partition(reduced.back()));
    return s.vectorize(outer.back());
}

Result<std::vector<std::string>> schedule_rows(Schedule& s, const std::string& name, const std::set<std::string>& done,
                                               const ScheduleOptions& options) {
    std::string out = name;
    std::vector<std::string> members;
    if (!find_stage(s, name).reduce.empty()) {
        // A reduction that is a result itself: summed in registers, then stored.
        out = TRY(s.cache_write(name, Scope::Register));
        members.push_back(name);
    }
    RowGroup group = row_group(s, out, done);
    if (group.members.empty()) {
        TRY(schedule_map(s, out, options));
        return members;
    }
    const size_t inner_axes = find_stage(s, out).axes.size() - group.axes;
    if (group.members.size() == 1 && inner_axes == 0) {
        const Stage& only = find_stage(s, group.members[0]);
        if (!only.reduce.empty() && !reduces_along_lanes(s, only)) {
            TRY(schedule_window(s, group.members[0], out, options));
            return group.members;
        }
    }
    double row = 0;
    for (const std::string& m : group.members) {
        const Stage& stage = find_stage(s, m);
        double elements = 1;
        for (const ReduceAxis& r : stage.reduce) elements *= double(r.extent.as_int().value_or(64));
        for (size_t i = group.axes; i < stage.axes.size(); ++i)
            elements *= double(stage.axes[i].extent.as_int().value_or(64));
        row += 4 * elements;
    }
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
            TRY(reduce_in_lanes(s, m, options));
    }
    if (inner_axes > 0) {
        size_t first = s.loops(out).size() - inner_axes;
        TRY(vectorize_map(s, out, first, options));
    }
    return group.members;
}

}  // namespace tessera
