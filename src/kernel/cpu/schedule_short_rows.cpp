// Rows of few elements, with all that is computed row by row: lanes are rows.
#include <algorithm>

#include "kernel/cpu/schedule_kinds.h"

namespace tessera {
namespace {

constexpr int64_t kFewElements = 8;  // of a row, whatever the vectors

std::vector<std::string> stages_of(const std::string& out, const RowGroup& group) {
    std::vector<std::string> names = group.members;
    names.push_back(out);
    return names;
}

// Elements that a stage computes or combines for one row; nullopt where that is not known.
std::optional<int64_t> elements_of_row(const Stage& stage, size_t rows) {
    int64_t n = 1;
    for (size_t i = rows; i < stage.axes.size(); ++i) {
        if (!stage.axes[i].extent.as_int()) return std::nullopt;
        n *= *stage.axes[i].extent.as_int();
    }
    for (const ReduceAxis& r : stage.reduce) {
        if (!r.extent.as_int()) return std::nullopt;
        n *= *r.extent.as_int();
    }
    return n;
}

// Does a stage combine a few elements that lie together, for each of many that lie apart?
bool combines_few_of_many(const Stage& stage, size_t rows, int64_t lanes) {
    return stage.axes.size() == rows && stage.reduce.size() > 1 && !stage.reduce[0].extent.is_int(1) &&
           stage.reduce.back().extent.as_int().value_or(lanes) < lanes;
}

// The axes of rows that can be one, in all stages.
std::vector<std::vector<int>> rows_as_one(const Schedule& s, const std::vector<std::string>& names, size_t rows) {
    std::vector<std::vector<int>> groups{{0}};
    for (size_t i = 0; i + 1 < rows; ++i) {
        const bool dense = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
            const Stage& stage = find_stage(s, name);
            return lie_densely(s, stage, stage.axes[i], stage.axes[i + 1]);
        });
        if (!dense) groups.emplace_back();
        groups.back().push_back(int(i) + 1);
    }
    return groups;
}

// What is kept of a row lies with the rows last, so that a vector holds one element of each.
Status move_rows_last(Schedule& s, const std::string& name, size_t row) {
    const Stage& stage = find_stage(s, name);
    if (stage.axes.size() == row + 1) return {};
    IndexMap map;
    for (size_t i = 0; i < stage.axes.size(); ++i) {
        map.vars.push_back(index_var("d" + std::to_string(i), stage.axes[i].extent.as_int()));
        map.shape.push_back(stage.axes[i].extent);
    }
    map.indices = map.vars;
    std::rotate(map.indices.begin() + std::ptrdiff_t(row), map.indices.begin() + std::ptrdiff_t(row) + 1,
                map.indices.end());
    std::rotate(map.shape.begin() + std::ptrdiff_t(row), map.shape.begin() + std::ptrdiff_t(row) + 1, map.shape.end());
    return s.transform_layout(name, map);
}

// Is what a stage keeps of a row of open size?
bool keeps_open(const Stage& stage, size_t row) {
    return std::any_of(stage.axes.begin() + std::ptrdiff_t(row) + 1, stage.axes.end(),
                       [](const ReduceAxis& a) { return !a.extent.as_int(); });
}

// The loops inside one block of rows: written out, but for the rows and for loops of open size.
Status write_out(Schedule& s, const std::string& name, size_t row, int64_t lanes) {
    std::vector<Loop> order, kept;
    const std::vector<Loop> loops = s.loops(name);
    for (size_t i = row + 1; i < loops.size(); ++i) (s.reduces(loops[i]) ? order : kept).push_back(loops[i]);
    order.insert(order.end(), kept.begin(), kept.end());
    auto [vectors, lane] = TRY(s.split(loops[row], lanes));
    order.insert(order.end(), {vectors, lane});
    TRY(s.reorder(order));
    for (size_t i = 0; i + 2 < order.size(); ++i)
        if (s.extent(order[i]).as_int().value_or(kFewElements + 1) <= kFewElements) TRY(s.unroll(order[i]));
    TRY(s.unroll(vectors));
    return s.vectorize(lane);
}

}  // namespace

Result<bool> schedule_short_rows(Schedule& s, const std::string& out, const RowGroup& group,
                                 const CpuScheduleOptions& options) {
    constexpr int64_t kFewest = 4, kSideBySide = 4;
    const std::vector<std::string> names = stages_of(out, group);
    int64_t lanes = INT64_MAX;
    double bytes = 0;
    for (const std::string& name : names)
        lanes = std::min<int64_t>(lanes, lanes_of(s, find_stage(s, name), options.machine));
    // Wide elements take several registers.
    if (options.machine.vector_bytes >= kFewest * 4) lanes = std::max(lanes, kFewest);
    if (lanes < kFewest) return false;
    int64_t together = lanes;
    for (const std::string& name : names) {
        const Stage& stage = find_stage(s, name);
        auto elements = elements_of_row(stage, group.axes);
        const bool few = elements ? *elements < lanes || *elements <= kFewElements : options.short_rows;
        const bool of_many = names.size() == 2 && combines_few_of_many(stage, group.axes, lanes);
        if (stage.fold || (!few && !of_many)) return false;
        if (!few) together = kSideBySide * lanes;  // long sums do not wait for each other
        bytes += 4 * double(elements.value_or(kFewElements));
    }
    std::vector<std::vector<int>> groups = rows_as_one(s, names, group.axes);
    Expr last = 1;
    for (int i : groups.back()) last = last * find_stage(s, out).axes[size_t(i)].extent;
    if (last.as_int().value_or(lanes) < lanes) return false;
    if (last.as_int().value_or(together) < together) together = lanes;
    const size_t row = groups.size() - 1;
    if (groups.size() < group.axes)
        for (const std::string& name : names) {
            std::vector<std::vector<int>> own = groups;
            for (size_t i = group.axes; i < find_stage(s, name).axes.size(); ++i) own.push_back({int(i)});
            TRY(s.merge_axes(name, own));
        }

    std::vector<Loop> loops = s.loops(out);
    Loop rows = loops[row];
    auto count = s.extent(rows).as_int();
    rows = TRY(cut_tasks(s, {loops.begin(), loops.begin() + std::ptrdiff_t(row)}, rows, together, bytes, options));
    auto [blocks, lane] = TRY(s.split(rows, together));
    std::vector<Loop> order{blocks};
    order.insert(order.end(), loops.begin() + std::ptrdiff_t(row) + 1, loops.end());
    for (size_t i = 1; i < order.size(); ++i)
        if (s.extent(order[i]).as_int()) TRY(s.unroll(order[i]));
    order.push_back(lane);
    TRY(s.reorder(order));
    TRY(s.vectorize(lane));
    if (!count || *count % together) TRY(s.loop_partition(blocks));
    for (auto m = group.members.rbegin(); m != group.members.rend(); ++m) {
        TRY(s.compute_at(*m, blocks));
        TRY(s.set_scope(*m, keeps_open(find_stage(s, *m), row) ? Scope::Local : Scope::Register));
        TRY(move_rows_last(s, *m, row));
        TRY(write_out(s, *m, row, lanes));
    }
    return true;
}

}  // namespace tessera
