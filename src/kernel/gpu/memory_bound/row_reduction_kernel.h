// Reductions along rows, and what is computed from them row by row (norms, softmaxes, sums), with partial results in
// registers. A row has a power of two of threads, at most a block; a block has several short rows. What several stages
// read of a row is loaded once and stays in registers, or in shared memory where it is long. Partial results are
// combined by warp shuffles, those of several warps through shared memory with one barrier. Rows that lie across
// memory, as those over the channels of an image do, are read by threads that have neighbouring rows; each row has
// threads of several warps.
#pragma once

#include "kernel/schedule/schedule.h"
#include "kernel/schedule/schedule_options.h"

namespace tessera {

// How threads share rows of `length` elements.
struct RowThreads {
    int64_t threads = 32;  // of a row, a power of two
    int64_t rows = 1;      // of a block
    int64_t lanes = 1;     // neighbours in one access
    int64_t turns = 0;     // accesses of a thread; 0: not known at compile time, or too many for registers
    bool across = false;   // neighbouring threads have neighbouring rows, which lie across memory
};

// `bytes`: of an access of one element; `words`: 32-bit registers that a thread keeps for each of its elements.
RowThreads choose_row_threads(const Machine& machine, const Expr& rows, const Expr& length, int64_t lanes,
                              int64_t bytes, double words);
// The same of rows whose neighbours are neighbours in memory, such as the channels of an image's pixels.
RowThreads choose_column_threads(const Machine& machine, const Expr& rows, const Expr& length, int64_t bytes,
                                 double words);

// Empty where the stages are not of one row each, or rows are too short. `few`: rows that lie across memory may be few.
std::optional<Lowered> row_reduction_kernel(const Compute& compute, const ScheduleOptions& options, bool few = false);

}  // namespace tessera
