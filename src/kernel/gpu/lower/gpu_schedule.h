// A schedule for blocks of threads, from shapes alone. An iteration of a Parallel loop is one thread: maps, and
// reductions that each thread carries out by itself. Rows that a block reduces together are Bound loops: one block for
// each row.
#pragma once

#include "base/decision.h"
#include "kernel/schedule/schedule.h"
#include "kernel/schedule/schedule_options.h"

namespace tessera {

Result<Schedule> gpu_schedule(Compute compute, const ScheduleOptions& options);

// The nests of that schedule, contractions in tiles that a block shares. What was chosen and why is added to `choices`;
// where `traces` is given, the primitives are added to it.
Result<Lowered> lower_for_gpu(const Compute& compute, const ScheduleOptions& options, std::vector<Choice>& choices,
                              std::string* traces = nullptr);

}  // namespace tessera
