// Sums of long columns, fewer than a vector has lanes, whose rows lie one behind the other: several rows at once are
// whole vectors. Each place of them is summed by itself, then the places of each column are.
#include <algorithm>
#include <numeric>

#include "kernel/cpu/schedule_kinds.h"

namespace tessera {
namespace {

// Rows taken at once: whole vectors of them, and enough that sums do not wait for each other.
int64_t rows_at_once(int64_t columns, int64_t lanes) {
    constexpr int64_t kFewestVectors = 4;
    const int64_t rows = lanes / std::gcd(columns, lanes);
    return rows * divide_up(kFewestVectors, rows * columns / lanes);
}

// Does all that is read lie as rows of the stage's last axis?
bool reads_rows(const Schedule& s, const Stage& stage, int64_t columns) {
    const std::vector<Expr> loads = loads_of(stage);
    return std::all_of(loads.begin(), loads.end(), [&](const Expr& load) {
        auto row = stride_of(s, load, stage.reduce[0].var), column = stride_of(s, load, stage.axes.back().var);
        return row && column && row->is_int(columns) && column->is_int(1);
    });
}

// What is kept for places of several rows lies as those do.
Status lay_out_rows(Schedule& s, const std::string& name) {
    IndexMap map;
    for (const ReduceAxis& a : find_stage(s, name).axes) {
        map.vars.push_back(index_var("d" + std::to_string(map.vars.size()), a.extent.as_int()));
        map.shape.push_back(a.extent);
    }
    map.indices = map.vars;
    const Expr row = map.vars.back(), column = map.vars[map.vars.size() - 2], columns = map.shape[map.shape.size() - 2];
    map.indices.pop_back();
    map.indices.back() = row * columns + column;
    map.shape[map.shape.size() - 2] = map.shape.back() * columns;
    map.shape.pop_back();
    return s.transform_layout(name, map);
}

}  // namespace

Result<bool> schedule_few_columns(Schedule& s, const std::string& sum, const std::string& out,
                                  const CpuScheduleOptions& options) {
    const Stage stage = find_stage(s, sum);
    const int64_t lanes = lanes_of(s, stage, options.machine);
    if (stage.fold || stage.reduce.size() != 1 || stage.axes.size() != find_stage(s, out).axes.size()) return false;
    const auto columns = stage.axes.back().extent.as_int(), terms = stage.reduce[0].extent.as_int();
    if (!columns || *columns < 2 || *columns >= lanes || !reads_rows(s, stage, *columns)) return false;
    if (used_beside_loads(stage.value, stage.reduce[0].var)) return false;
    const int64_t rows = rows_at_once(*columns, lanes);
    if (terms && *terms < 2 * rows) return false;

    std::vector<Loop> loops = s.loops(out);
    const double bytes = 4.0 * double(*columns) * double(terms.value_or(256));
    auto [all, column] = TRY(s.split(loops.back(), *columns));
    (void)TRY(make_tasks(s, out, loops.size() - 1, bytes, options));
    TRY(s.compute_at(sum, all));
    TRY(s.set_scope(sum, Scope::Register));

    auto [steps, row] = TRY(s.split(s.loops(sum).back(), rows));
    const std::string partial = TRY(s.rfactor(row));
    TRY(s.compute_at(partial, all));
    TRY(s.set_scope(partial, Scope::Register));
    TRY(lay_out_rows(s, partial));
    const std::vector<Loop> own = s.loops(partial);
    const Loop step = own.back(), place = own[own.size() - 2], across = own[own.size() - 3];
    TRY(s.reorder({step, place, across}));
    auto [vectors, lane] = TRY(s.split(TRY(s.fuse(place, across)), lanes));
    TRY(s.unroll(vectors));
    TRY(s.vectorize(lane));
    TRY(s.loop_partition(step));
    const std::vector<Loop> last = s.loops(sum);
    TRY(s.unroll(last.back()));
    TRY(s.unroll(last[last.size() - 2]));
    TRY(s.unroll(column));
    return true;
}

}  // namespace tessera
