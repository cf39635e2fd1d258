#include "kernel/gpu/memory_bound/column_parts_kernel.h"

#include <algorithm>

#include "kernel/analyse/inline_maps.h"
#include "kernel/gpu/keep_wide.h"
#include "kernel/gpu/memory_bound/row_reduction_kernel.h"
#include "kernel/gpu/memory_bound/row_stages.h"
#include "kernel/lower/join_variants.h"

namespace tessera {
namespace {

constexpr int64_t kColumnsOfBlock = 32, kBlocksOfCore = 4;
constexpr int64_t kShortestPart = 128;        // rows: so many that each thread of a block has some
constexpr int64_t kFewestElements = 1 << 17;  // that are worth a second launch
constexpr int64_t kMostPartsOverWanted = 4;

// The parts of so many rows: enough for all blocks, and if possible of one length.
int64_t parts_of(int64_t rows, int64_t columns, const Machine& machine) {
    const int64_t blocks = kBlocksOfCore * machine.cores;
    const int64_t most = rows / kShortestPart;
    const int64_t wanted = std::min((blocks * kColumnsOfBlock + columns - 1) / columns, most);
    for (int64_t parts = wanted; parts > 1 && parts <= std::min(most, wanted * kMostPartsOverWanted); ++parts)
        if (rows % parts == 0) return parts;
    return std::max<int64_t>(wanted, 1);
}

// The only reduction; nothing where there are several, or where it reads what another stage computes.
std::optional<size_t> only_reduction(const Compute& c) {
    std::optional<size_t> found;
    for (size_t i = 0; i < c.stages.size(); ++i) {
        if (c.stages[i].reduce.empty()) continue;
        if (found) return {};
        found = i;
    }
    if (!found || c.stages[*found].fold || c.stages[*found].reduce.size() != 1) return {};
    for (const Expr& load : loads_of(c.stages[*found]))
        if (size_t(load.node().slot) >= c.params) return {};
    return found;
}

}  // namespace

Result<std::optional<Lowered>> column_parts_kernel(const Compute& compute, const ScheduleOptions& options,
                                                   const std::function<Result<Lowered>(const Compute&)>& lower_rest) {
    const std::optional<Lowered> none;
    Compute wide = compute;
    if (!options.strict) keep_wide(wide);
    Schedule s(std::move(wide));
    TRY(inline_maps(s));
    Compute c = along_one_axis(rows_first(without_unit_axes(s.compute())));
    const auto reduction = only_reduction(c);
    if (!reduction) return none;
    const RowStages found = find_rows(c);
    if (!found.ok || !lie_across(Schedule(c), found, true)) return none;
    const Stage sum = c.stages[*reduction];
    const auto rows = sum.reduce[0].extent.as_int(), columns = elements_of(sum.axes).as_int();
    if (!rows || !columns || *rows * *columns < kFewestElements) return none;
    const int64_t parts = parts_of(*rows, *columns, options.machine);
    if (parts == 1) return none;

    // Parameters of both launches: those of the Compute, then the parts.
    const DType dtype = c.buffers[size_t(sum.buffer)].dtype;
    const int slot = int(c.params);
    const Buffer partial{.name = sum.name + "_parts", .dtype = dtype, .shape = {parts * *columns}};
    auto place = [&](const Expr& which) {
        Expr at = which;
        for (const ReduceAxis& axis : sum.axes) at = at * axis.extent + axis.var;
        return std::vector<Expr>{at};
    };
    auto moved = [&](const Expr& e) {
        return map_loads(e, [&](const Expr& x) -> Expr {
            const int from = x.node().slot;
            return from < slot ? x : load(from + 1, x.dtype(), x.args());
        });
    };
    c.buffers.insert(c.buffers.begin() + slot, partial);
    c.params += 1;
    c.known.resize(c.params);
    for (Stage& stage : c.stages) {
        stage.value = moved(stage.value);
        if (stage.buffer >= slot) ++stage.buffer;
    }

    Compute first = c;
    Stage part = first.stages[*reduction];
    const int64_t length = (*rows + parts - 1) / parts;
    const ReduceAxis which{index_var("part", parts), parts}, inside{index_var("in_part", length), length};
    const Expr row = which.var * length + inside.var;
    part.name += "_part";
    part.value = substitute(part.value, {{sum.reduce[0].var.node().name, row}});
    if (parts * length > *rows) part.value = select(lt(row, *rows), part.value, identity(sum.combine, dtype));
    part.axes.insert(part.axes.begin(), which);
    part.reduce = {inside};
    part.buffer = slot;
    part.store = place(which.var);
    first.stages = {part};
    first.buffers.resize(first.params);
    const auto blocks = row_reduction_kernel(first, options, true);
    if (!blocks) return none;

    Stage& rest = c.stages[*reduction];
    const ReduceAxis all{index_var("which_part", parts), parts};
    rest.value = load(slot, dtype, place(all.var));
    rest.reduce = {all};
    auto combined = row_reduction_kernel(c, options, true);
    Lowered made = one_after_other(*blocks, combined ? std::move(*combined) : TRY(lower_rest(c)));
    made.scratch.insert(made.scratch.begin(), slot);
    return verify(made.kernel).ok() ? std::optional(std::move(made)) : none;
}

}  // namespace tessera
