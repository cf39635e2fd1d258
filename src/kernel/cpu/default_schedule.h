// A schedule from shapes and the machine alone, good untuned. It looks at the stages: a sum of products over two operands
// is a contraction; reductions over the innermost axes share their rows; all else is a map.
#pragma once

#include "base/decision.h"
#include "base/machine.h"
#include "kernel/schedule/schedule.h"

namespace tessera {

struct ScheduleOptions {
    Machine machine;
    int threads = 1;
    bool strict = false;
    int64_t tile_rows = 0;  // of the register tile of a contraction whose rows are not known; 0: chosen
};

Result<Schedule> default_schedule(Compute compute, const ScheduleOptions& options);

}  // namespace tessera
