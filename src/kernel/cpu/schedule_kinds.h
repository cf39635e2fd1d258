// The kinds of stages that default_schedule knows, each with a schedule of its own. All take the name of the stage that
// stays outermost and attach what feeds it.
#pragma once

#include <optional>
#include <set>

#include "kernel/cpu/contraction.h"
#include "kernel/cpu/default_schedule.h"

namespace tessera {

const Stage& find_stage(const Schedule& s, std::string_view name);
const Stage* writer_of(const Schedule& s, int buffer);
std::vector<std::string> readers_of(const Schedule& s, int buffer);  // names of stages
std::vector<Expr> loads_of(const Stage& stage, int buffer = -1);     // of that buffer, or all
const ReduceAxis* last_larger_axis(const Stage& stage);  // that has more than one element; null if there is none
// How the address of an access moves, in elements, when var grows by one; nullopt where that is not constant.
std::optional<Expr> stride_of(const Schedule& s, const Expr& load, const Expr& var);
std::optional<Expr> stride_of(const Schedule& s, int buffer, const std::vector<Expr>& indices, const Expr& var);
bool used_beside_loads(const Expr& value, const Expr& var);  // other than in the indices of loads
bool is_costly(const Expr& value);  // there are functions in it that take ten times as long as a product, or more
Expr elements_of(const std::vector<ReduceAxis>& axes);
int lanes_of(const Schedule& s, const Stage& stage, const Machine& machine);

// Axes along which the value is another expression for each of a few places, or for each remainder by a few; not more
// than `most` expressions together.
struct PhasedAxis {
    size_t axis;
    int64_t count;
    bool operator==(const PhasedAxis&) const = default;
};
std::vector<PhasedAxis> find_phases(const Stage& stage, int64_t most, bool innermost = false);

// Maps go into what reads them, unless that would compute costly functions again, or they are to stay.
Status inline_maps(Schedule& s, const std::function<bool(const Stage&)>& stays = {});

// `stage` is a contraction c; `out`, where it is not empty, the map that reads each of its elements once and writes the
// result: see matching_groups.
Status schedule_contraction(Schedule& s, std::string stage, Contraction c, std::string out,
                            const ScheduleOptions& options);

// The same for convolutions in small groups, whose input is read where it lies. False: it is not of that kind, and
// nothing was done.
Result<bool> schedule_grouped(Schedule& s, const std::string& stage, const Contraction& c, const std::string& out,
                              const ScheduleOptions& options);

// Rows, or columns, along which an operand does not lie densely (rows of an image) are taken one by one: all axes but
// the last, or the last that lie as one, become a batch, though the other operand does not have them. What is packed
// then never crosses them. With Care::RowsApart, also where they are short, or where the operand is packed along k or
// ahead.
void keep_rows_apart(const Schedule& s, const Stage& stage, Contraction& c, const ScheduleOptions& options);

Expr rows_of(const Stage& stage, const Contraction& c);
Expr extent_of(const std::vector<ReduceAxis>& axes, const std::vector<int>& which);    // of those axes together
bool lies_along_columns(const Schedule& s, const Stage& stage, const Contraction& c);  // B is one load, without gaps
bool lies_along_depth(const Schedule& s, const Stage& stage, const Contraction& c);    // something of A, along the last
// The copy with filled edges that an operand is read from, element by element; null where it is not.
const Stage* copy_of(const Schedule& s, const Expr& operand);
bool is_known(const Schedule& s, const Expr& operand);  // before it runs
ContractionShape measure_contraction(const Schedule& s, const Stage& stage, const Contraction& c);

// The one contraction of a Compute, where the number of its rows is not known.
struct OpenRows {
    Expr rows;
    ContractionShape shape;
};
std::optional<OpenRows> open_rows(const Compute& compute, const Machine& machine);

// The one contraction of a Compute, where the number of its columns is not known.
struct OpenColumns {
    Expr line, all;  // of the last of their axes, or of those that lie as one, and of all
    bool apart;      // lines are tiled by themselves
    ContractionShape shape;
};
std::optional<OpenColumns> open_columns(const Compute& compute, const Machine& machine);

// The length of the lines that a pool, or a reduction over outer axes, runs along, if it is dynamic.
struct OpenLines {
    Expr line;
    bool slides;  // a window goes along them
};
std::optional<OpenLines> open_lines(const Compute& compute, const Machine& machine);

// How many elements that lie without gaps a reduction combines at a time.
Expr length_of_run(const Schedule& s, const Stage& stage);
// The length of the contiguous rows that reductions run along, if it is dynamic.
std::optional<Expr> open_row_length(const Compute& compute, const Machine& machine);

// The axes of `out` that make up each group of `producer`'s axes, in such an order that both merge to the same index;
// nullopt where they do not.
std::optional<std::vector<std::vector<int>>> matching_groups(const Stage& out, const Stage& producer,
                                                             const std::vector<std::vector<int>>& groups);

// Can two axes, with none but single elements between them, be one loop, all addresses staying linear in it?
bool lie_densely(const Schedule& s, const Stage& stage, const ReduceAxis& outer, const ReduceAxis& inner);
// Is something read or written at quotients or remainders by an open size? Each element would be divided for.
bool divides_by_open(const Stage& stage);
// Neighbouring axes of a map along which all that is read and written lies densely become one, from number `first` on.
Status merge_dense_axes(Schedule& s, const std::string& stage, size_t first = 0);

// What is computed row by row: the first `axes` axes of all members and of `out` say which row.
struct RowGroup {
    size_t axes = 0;
    std::vector<std::string> members;  // producers first
};
// The producers that `out` alone reads, as far as they are computed row by row.
RowGroup row_group(const Schedule& s, const std::string& out, const std::set<std::string>& done);
// Is what the reduction reads contiguous along its innermost reduction axis (and not along its innermost axis)?
bool reduces_along_lanes(const Schedule& s, const Stage& stage);

// The loops of a map from number `first` on, its innermost in vectors; those before it are left alone.
Status vectorize_map(Schedule& s, const std::string& stage, size_t first, const ScheduleOptions& options);
// A stage at the root without reduction, in parallel.
Status schedule_map(Schedule& s, const std::string& stage, const ScheduleOptions& options);
// `out` and what it needs row by row, where rows have few elements and there are many: lanes are rows. False: they are
// not of that kind, and nothing was done.
Result<bool> schedule_short_rows(Schedule& s, const std::string& out, const RowGroup& group,
                                 const ScheduleOptions& options);
// A sum of few columns, known in number, over many rows that lie densely, and `out`, which reads it element by element.
// False: it is not of that kind, and nothing was done.
Result<bool> schedule_few_columns(Schedule& s, const std::string& sum, const std::string& out,
                                  const ScheduleOptions& options);
// `stage` and the stages that it needs row by row, whose names are given back; `done` are scheduled already.
Result<std::vector<std::string>> schedule_rows(Schedule& s, const std::string& stage, const std::set<std::string>& done,
                                               const ScheduleOptions& options);
// A reduction along contiguous elements: partial results in the lanes of several vectors. With `apart`, also where the
// elements are not contiguous.
Status reduce_in_lanes(Schedule& s, const std::string& stage, const ScheduleOptions& options, bool apart = false);
// What is known and does not lie along an axis of a stage is prepared so that it does.
Status turn_weights(Schedule& s, const std::string& stage, const Expr& along);
const Stage* padded_copy(const Schedule& s, const Stage& stage);  // with filled edges, that a window reads; or null
// `sum`, a reduction whose innermost axis is contiguous in what it reads, and `out`, which reads it element by element.
Status schedule_window(Schedule& s, const std::string& sum, const std::string& out, const ScheduleOptions& options);
// The first `count` loops as one, cut into tasks of at least `grain` bytes of work, in parallel if there is enough.
// Gives the innermost of the loops that it made or found: what is inside belongs to one iteration.
Result<std::optional<Loop>> make_tasks(Schedule& s, const std::string& stage, size_t count, double bytes,
                                       const ScheduleOptions& options);

// Where `loop` is long, tasks are parts of it, multiples of `multiple`, for each iteration of the loops around it, with
// `bytes` of work for an iteration. Gives the loop inside of one task, or `loop` where there are none.
Result<Loop> cut_tasks(Schedule& s, const std::vector<Loop>& around, const Loop& loop, int64_t multiple, double bytes,
                       const ScheduleOptions& options);

}  // namespace tessera
