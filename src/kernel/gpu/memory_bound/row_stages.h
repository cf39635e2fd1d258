// Stages that are computed row by row: all have the same rows, and those that go along a row the same elements.
#pragma once

#include "kernel/analyse/stages.h"

#include <set>

namespace tessera {

struct RowStages {
    std::vector<ReduceAxis> rows, along;  // axes: of the rows, and along a row
    bool ok = false;
};
RowStages find_rows(const Compute& c);

bool is_output(const Compute& c, const Stage& stage);
// The axes of a stage along its row: those that it reduces over, or those of a map after the axes of the rows.
std::vector<ReduceAxis> axes_along(const Stage& stage, size_t rows);

// The same stages without axes of one element.
Compute without_unit_axes(Compute c);
// The same stages, maps with one axis where they read an intermediate by several, as behind a reshape of rows.
Compute with_whole_rows(Compute c);
// The same stages, maps with the axes of the rows first: those that they read results of reductions at.
Compute rows_first(Compute c);
// The same stages, reductions over several axes as over one, and parameters as lists: a row that one stage has as
// several axes and another as one is then the same row.
Compute along_one_axis(Compute c);
// Whether the reduced elements are strided, and adjacent rows are contiguous in memory, and many, unless they may be
// few.
bool lie_across(const Schedule& s, const RowStages& found, bool few);
// Whether all that is reduced lies along rows that are worth several threads.
bool are_worth_threads(const Schedule& s, const RowStages& found);
// Elements of parameters that several stages read at their own place, as stages of their own: each is loaded once.
Compute loads_apart(Compute c, const RowStages& found);
// What would be kept of each element is computed again by each stage that reads it.
Result<Compute> without_kept(const Compute& c, size_t rows);

// Neighbours along rows in one access, as all accesses to memory outside of the kernel allow.
int64_t lanes_for(const Schedule& s, const RowStages& found);
int64_t widest_access(const Compute& c);  // bytes of the widest element that is loaded

// Bytes kept for each element of a row, and the maximum kept at a time.
struct KeptBytes {
    int64_t all = 0, at_once = 0;
};
KeptBytes bytes_kept(const Compute& c, size_t rows);

}  // namespace tessera
