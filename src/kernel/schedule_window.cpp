// Windows: reductions whose innermost axis lies in lanes (pooling, depthwise convolution, sums over outer axes). A few
// outputs at a time are summed in registers.
#include <algorithm>

#include "base/check.h"
#include "kernel/schedule_kinds.h"

namespace tessera {

namespace {

// Axes of one element go into their neighbours: no loop needs them.
Status merge_unit_axes(Schedule& s, const std::string& sum, const std::string& out) {
    const auto& axes = find_stage(s, sum).axes;
    std::vector<std::vector<int>> groups(1);
    for (size_t i = 0; i < axes.size(); ++i) {
        bool all_units = true;
        for (int j : groups.back()) all_units &= axes[size_t(j)].extent.is_int(1);
        if (!groups.back().empty() && !all_units && !axes[i].extent.is_int(1)) groups.emplace_back();
        groups.back().push_back(int(i));
    }
    if (groups.size() == axes.size()) return {};
    TRY(s.merge_axes(sum, groups));
    return s.merge_axes(out, groups);
}

}  // namespace

Status schedule_window(Schedule& s, const std::string& sum, const std::string& out, const ScheduleOptions& options) {
    TRY(merge_unit_axes(s, sum, out));
    const Stage stage = find_stage(s, sum);
    const int64_t lanes = lanes_of(s, stage, options.machine);
    std::vector<Loop> loops = s.loops(out);
    const size_t last = loops.size() - 1;
    auto channels = s.extent(loops[last]).as_int();

    // Vectors of channels, then neighbours along the next axis, as many as registers hold.
    int64_t vectors = 4;
    while (vectors > 1 && channels && *channels < vectors * lanes) --vectors;
    int64_t pixels = 1;
    int64_t taps = 1;
    bool small = true;
    for (const ReduceAxis& r : stage.reduce) {
        auto e = r.extent.as_int();
        small &= e.has_value();
        taps *= e.value_or(1);
    }
    small &= taps <= 49;
    if (small && last > 0) {
        auto width = s.extent(loops[last - 1]).as_int();
        pixels = std::max<int64_t>(1, std::min<int64_t>(4, options.machine.vector_registers / 2 / vectors));
        while (pixels > 1 && width && *width % pixels) --pixels;
    }
    bool in_lanes = lanes > 1 && (!channels || *channels >= lanes);
    if (!in_lanes) vectors = 1;

    std::vector<Loop> order(loops.begin(), loops.end() - 1);
    std::optional<Loop> pixel;
    if (pixels > 1) {
        auto [o, i] = TRY(s.split(loops[last - 1], pixels));
        order.back() = o;
        pixel = i;
    }
    size_t tasks = order.size();
    Loop at = loops[last], channel = loops[last];
    std::optional<Loop> vector, lane;
    if (in_lanes) {
        auto [o, i] = TRY(s.split(channel, vectors * lanes));
        auto [v, l] = TRY(s.split(i, lanes));
        at = o;
        vector = v;
        lane = l;
    }
    order.push_back(at);
    if (pixel) order.push_back(*pixel);
    if (vector) order.insert(order.end(), {*vector, *lane});
    TRY(s.reorder(order));
    if (pixel) TRY(s.unroll(*pixel));
    if (vector) {
        TRY(s.unroll(*vector));
        TRY(s.vectorize(*lane));
        if (!channels || *channels % (vectors * lanes)) TRY(s.loop_partition(at));
    }
    TRY(s.compute_at(sum, at));
    TRY(s.set_scope(sum, Scope::Register));

    std::vector<Loop> own = s.loops(sum), kept, reduced;
    for (const Loop& l : own) (s.reduces(l) ? reduced : kept).push_back(l);
    std::vector<Loop> inside = reduced;
    if (pixel) inside.push_back(kept[kept.size() - 2]);
    if (in_lanes) {
        auto [v, l] = TRY(s.split(kept.back(), lanes));
        inside.insert(inside.end(), {v, l});
        TRY(s.reorder(inside));
        TRY(s.unroll(v));
        TRY(s.vectorize(l));
    } else {
        TRY(s.reorder(inside));
    }
    if (pixel) TRY(s.unroll(kept[kept.size() - 2]));
    if (small)
        for (const Loop& r : reduced) TRY(s.unroll(r));

    // Whole rows, where there are enough of them; parts of one where there is nothing else.
    double bytes = double(taps * pixels) * 4 * double(channels.value_or(64));
    if (tasks > 1) {
        int64_t rows = 1;
        for (size_t i = 0; i + 1 < tasks; ++i) rows *= s.extent(order[i]).as_int().value_or(1 << 20);
        if (rows >= 4 * options.threads) {
            bytes *= double(s.extent(order[tasks - 1]).as_int().value_or(16));
            --tasks;
        }
    } else if (tasks == 0) {
        tasks = 1;
        bytes = double(taps) * 4 * double(in_lanes ? vectors * lanes : 1);
    }
    (void)TRY(make_tasks(s, out, tasks, bytes, options));
    return {};
}

}  // namespace tessera
