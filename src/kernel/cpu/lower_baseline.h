// A Compute lowered for code that is soon there: one schedule for all sizes, without weights that are prepared,
// register tiles and unrolled loops.
#pragma once

#include "kernel/schedule/schedule.h"
#include "kernel/schedule/schedule_options.h"

namespace tessera {

Result<Lowered> lower_baseline(const Compute& compute, const ScheduleOptions& options);

}  // namespace tessera
