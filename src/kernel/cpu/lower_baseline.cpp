#include "kernel/cpu/lower_baseline.h"

#include <algorithm>

#include "kernel/cpu/schedule_kinds.h"

namespace tessera {
namespace {

// An axis of a sum along which what is loaded in vectors stays the same: so many of its elements share each load.
struct SharingAxis {
    size_t axis = 0;
    int64_t count = 1;
};
SharingAxis find_sharing_axis(const Schedule& s, const Stage& sum) {
    const std::vector<Expr> loads = loads_of(sum);
    for (size_t i = sum.axes.size() - 1; i-- > 0;) {
        const auto extent = sum.axes[i].extent.as_int();
        if (extent == 1) continue;
        const bool shares = std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
            auto along = stride_of(s, load, sum.axes.back().var), across = stride_of(s, load, sum.axes[i].var);
            return across && across->is_int(0) && !(along && along->is_int(0));
        });
        if (!shares || !extent) continue;
        for (int64_t count : {6, 5, 4, 3, 2})
            if (*extent % count == 0) return {i, count};
    }
    return {};
}

// `sum`, and `out` that reads it element by element: vectors along the last axis, and a few rows that share them.
class BaselineSum {
  public:
    BaselineSum(Schedule& s, const std::string& sum, const std::string& out, const CpuScheduleOptions& options)
        : s_(s), sum_(sum), out_(out), options_(options), stage_(find_stage(s, sum)) {
        const auto columns = stage_.axes.back().extent.as_int();
        lanes_ = lanes_of(s, stage_, options.machine);
        if (lanes_ < 2 || columns == 1) lanes_ = 1;
        // What reads from many places (a Concat) is long for each element of the tile.
        constexpr size_t kMostLoads = 6;
        if (lanes_ < 2 || loads_of(stage_).size() > kMostLoads) return;
        rows_ = find_sharing_axis(s, stage_);
        if (columns.value_or(0) >= 2 * lanes_) vectors_ = 2;
    }

    Status run() {
        std::vector<Loop> order = s_.loops(out_), tile;
        if (rows_.count > 1) {
            auto [outer, row] = TRY(s_.split(order[rows_.axis], rows_.count));
            order[rows_.axis] = outer;
            TRY(s_.unroll(row));
            tile.push_back(row);
        }
        if (lanes_ > 1) {
            auto [outer, inside] = TRY(s_.split(order.back(), vectors_ * lanes_));
            order.back() = outer;
            TRY(cut_vectors(inside, tile));
        }
        const size_t count = order.size();
        order.insert(order.end(), tile.begin(), tile.end());
        TRY(s_.reorder(order));
        double bytes = 4 * double(rows_.count * vectors_ * lanes_);
        for (const ReduceAxis& r : stage_.reduce) bytes *= double(r.extent.as_int().value_or(64));
        const std::optional<Loop> at = TRY(make_tasks(s_, out_, count, bytes, options_));
        TRY(s_.compute_at(sum_, *at));
        TRY(s_.set_scope(sum_, Scope::Register));
        return order_sum();
    }

  private:
    // A loop over vectors, unrolled, and one over lanes.
    Status cut_vectors(Loop loop, std::vector<Loop>& tile) {
        if (vectors_ > 1) {
            auto [vector, lane] = TRY(s_.split(loop, lanes_));
            TRY(s_.unroll(vector));
            tile.push_back(vector);
            loop = lane;
        }
        TRY(s_.vectorize(loop));
        tile.push_back(loop);
        return {};
    }

    // Terms outside, the tile inside.
    Status order_sum() {
        std::vector<Loop> order, terms, tile;
        size_t axis = 0;
        for (const Loop& loop : s_.loops(sum_)) {
            if (s_.reduces(loop)) {
                terms.push_back(loop);
            } else if (++axis; axis == stage_.axes.size() && lanes_ > 1) {
                TRY(cut_vectors(loop, tile));
            } else if (axis - 1 == rows_.axis && rows_.count > 1) {
                TRY(s_.unroll(loop));
                tile.push_back(loop);
            } else {
                order.push_back(loop);
            }
        }
        order.insert(order.end(), terms.begin(), terms.end());
        order.insert(order.end(), tile.begin(), tile.end());
        return s_.reorder(order);
    }

    Schedule& s_;
    const std::string &sum_, &out_;
    const CpuScheduleOptions& options_;
    const Stage stage_;
    SharingAxis rows_;
    int64_t lanes_ = 1, vectors_ = 1;
};

// A sum across lanes, alone, and what reads it element by element.
bool is_plain_sum(const Schedule& s, const Stage& sum, const Stage& out) {
    return !sum.fold && !sum.axes.empty() && sum.axes.size() == out.axes.size() && !reduces_along_lanes(s, sum);
}

Result<std::vector<std::string>> schedule_stage(Schedule& s, const std::string& name, const std::set<std::string>& done,
                                                const CpuScheduleOptions& options) {
    const Stage& stage = find_stage(s, name);
    if (stage.reduce.empty()) {
        const RowGroup group = row_group(s, name, done);
        if (group.members.size() == 1 && group.axes == stage.axes.size()) {
            const Stage& sum = find_stage(s, group.members[0]);
            if (!sum.reduce.empty() && is_plain_sum(s, sum, stage)) {
                TRY(BaselineSum(s, group.members[0], name, options).run());
                return group.members;
            }
        }
    } else if (is_plain_sum(s, stage, stage) && row_group(s, name, done).members.empty()) {
        const std::string out = TRY(s.cache_write(name, Scope::Register));
        TRY(BaselineSum(s, name, out, options).run());
        return std::vector<std::string>{out};
    }
    return schedule_rows(s, name, done, options);
}

}  // namespace

Result<Lowered> lower_baseline(const Compute& compute, const ScheduleOptions& given) {
    CpuScheduleOptions options{given};
    options.fallback = Fallback::NoContractions;
    Schedule s(compute);
    TRY(inline_plain_maps(s));
    std::vector<std::string> names;
    for (const Stage& stage : s.compute().stages) names.push_back(stage.name);
    std::set<std::string> done;
    // From the end: a stage takes along what is computed for each of its rows.
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
        if (!done.insert(*name).second) continue;
        const std::vector<std::string> taken = TRY(schedule_stage(s, *name, done, options));
        done.insert(taken.begin(), taken.end());
    }
    return lower(s);
}

}  // namespace tessera
