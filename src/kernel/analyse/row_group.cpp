#include "kernel/analyse/row_group.h"

#include <algorithm>

#include "kernel/analyse/byte_sums.h"
#include "kernel/analyse/stages.h"

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
    constexpr int64_t kShortWindow = 32;
    bool along = false, across = false;
    const ReduceAxis* last = last_larger_axis(stage);
    const bool is_short = stage.reduce.back().extent.as_int().value_or(kShortWindow) < kShortWindow;
    for (const Expr& load : loads_of(stage)) {
        auto r = stride_of(s, load, stage.reduce.back().var);
        if (r && r->is_int(0)) continue;  // the same for all that is combined
        along |= r && r->is_int(sums_words(stage) ? 4 : 1);
        if (!last) continue;
        auto a = stride_of(s, load, last->var);
        across |= a && a->is_int(1);
        // A window that moves by several elements.
        for (const Expr& index : load.args())
            across |= is_short && depends_on(index, last->var) && depends_on(index, stage.reduce.back().var);
    }
    return along && !across;
}

}  // namespace tessera
