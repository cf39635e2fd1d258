// Windows: reductions whose innermost axis lies in lanes (pooling, depthwise convolution, sums over outer axes). A few
// outputs at a time are summed in registers.
#include <algorithm>

#include "base/check.h"
#include "kernel/schedule_kinds.h"

namespace tessera {

Status schedule_window(Schedule& s, const std::string& sum, const std::string& out, const ScheduleOptions& options) {
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
    const size_t tasks = order.size();
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

    double bytes = double(taps * pixels) * 4 * double(channels.value_or(64));
    (void)TRY(make_tasks(s, out, tasks, bytes, options));
    return {};
}

}  // namespace tessera
