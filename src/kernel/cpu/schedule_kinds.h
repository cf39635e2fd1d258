// The kinds of stages that default_schedule knows, each with a schedule of its own. All take the name of the stage that
// stays outermost and attach what feeds it.
#pragma once

#include <optional>
#include <set>

#include "kernel/analyse/merge_dense_axes.h"
#include "kernel/analyse/row_group.h"
#include "kernel/cpu/contraction_tiles.h"
#include "kernel/cpu/default_schedule.h"

namespace tessera {

int lanes_of(const Schedule& s, const Stage& stage, const Machine& machine);

// Maps go into what reads them, but those that a pass of this component made: padded copies and tables of places.
Status inline_plain_maps(Schedule& s);

// `stage` is a contraction c; `out`, where it is not empty, the map that reads each of its elements once and writes the
// result: see matching_groups.
Status schedule_contraction(Schedule& s, std::string stage, Contraction c, std::string out,
                            const CpuScheduleOptions& options);

// The same for convolutions in small groups, whose input is read where it lies. False: it is not of that kind, and
// nothing was done.
Result<bool> schedule_grouped(Schedule& s, const std::string& stage, const Contraction& c, const std::string& out,
                              const CpuScheduleOptions& options);

// Rows, or columns, along which an operand does not lie densely (rows of an image) are taken one by one: all axes but
// the last, or the last that lie as one, become a batch, though the other operand does not have them. What is packed
// then never crosses them. With Fallback::SeparateRows, also where they are short, or where the operand is packed along
// k or ahead.
void keep_rows_apart(const Schedule& s, const Stage& stage, Contraction& c, const CpuScheduleOptions& options);

bool lies_along_columns(const Schedule& s, const Stage& stage, const Contraction& c);  // B is one load, without gaps
bool lies_along_depth(const Schedule& s, const Stage& stage, const Contraction& c);    // something of A, along the last
// The copy with filled edges that an operand is read from, element by element; null where it is not.
const Stage* copy_of(const Schedule& s, const Expr& operand);
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

// The loops of a map from number `first` on, its innermost in vectors; those before it are left alone.
Status vectorize_map(Schedule& s, const std::string& stage, size_t first, const CpuScheduleOptions& options);
// A stage at the root without reduction, in parallel.
Status schedule_map(Schedule& s, const std::string& stage, const CpuScheduleOptions& options);
// `out` and what it needs row by row, where rows have few elements and there are many: lanes are rows. False: they are
// not of that kind, and nothing was done.
Result<bool> schedule_short_rows(Schedule& s, const std::string& out, const RowGroup& group,
                                 const CpuScheduleOptions& options);
// A sum of few columns, known in number, over many rows that lie densely, and `out`, which reads it element by element.
// False: it is not of that kind, and nothing was done.
Result<bool> schedule_few_columns(Schedule& s, const std::string& sum, const std::string& out,
                                  const CpuScheduleOptions& options);
// `stage` and the stages that it needs row by row, whose names are given back; `done` are scheduled already.
Result<std::vector<std::string>> schedule_rows(Schedule& s, const std::string& stage, const std::set<std::string>& done,
                                               const CpuScheduleOptions& options);
// A reduction along contiguous elements: partial results in the lanes of several vectors. With `apart`, also where the
// elements are not contiguous.
Status reduce_in_lanes(Schedule& s, const std::string& stage, const CpuScheduleOptions& options, bool apart = false);
// What is known and does not lie along an axis of a stage is prepared so that it does.
Status turn_weights(Schedule& s, const std::string& stage, const Expr& along);
const Stage* padded_copy(const Schedule& s, const Stage& stage);  // with filled edges, that a window reads; or null
// `sum`, a reduction whose innermost axis is contiguous in what it reads, and `out`, which reads it element by element.
Status schedule_window(Schedule& s, const std::string& sum, const std::string& out, const CpuScheduleOptions& options);
// The first `count` loops as one, cut into tasks of at least `grain` bytes of work, in parallel if there is enough.
// Gives the innermost of the loops that it made or found: what is inside belongs to one iteration.
Result<std::optional<Loop>> make_tasks(Schedule& s, const std::string& stage, size_t count, double bytes,
                                       const CpuScheduleOptions& options);

// Where `loop` is long, tasks are parts of it, multiples of `multiple`, for each iteration of the loops around it, with
// `bytes` of work for an iteration. Gives the loop inside of one task, or `loop` where there are none.
Result<Loop> cut_tasks(Schedule& s, const std::vector<Loop>& around, const Loop& loop, int64_t multiple, double bytes,
                       const CpuScheduleOptions& options);

}  // namespace tessera
