// A schedule from shapes and the machine alone, good untuned. It looks at the stages: a sum of products over two
// operands is a contraction; reductions over the innermost axes share their rows; all else is a map.
#pragma once

#include "base/decision.h"
#include "kernel/schedule/schedule.h"
#include "kernel/schedule/schedule_options.h"

namespace tessera {

// What a schedule does without, so that it can be lowered where the default one cannot.
enum class Fallback {
    None,
    SeparateRows,    // axes whose elements are not contiguous are never fused
    NoContractions,  // contractions are scheduled as other reductions are
};

// For which of the possible sizes it is.
struct CpuScheduleOptions : ScheduleOptions {
    int64_t tile_rows = 0;  // of the register tile of a contraction whose rows are not known; 0: chosen
    bool few_rows = false;  // of a contraction whose rows are not known: its B is not worth a copy
    Fallback fallback = Fallback::None;
    int64_t tile_columns = 0;  // of the register tile of a contraction whose columns are not known; 0: chosen
    bool whole_tiles = false;  // lines of unknown length that windows go along: they have tile_columns, or more
    bool short_lines = false;  // columns of a contraction that come in lines of unknown length: they are short
    bool short_rows = false;   // rows of unknown length that are reduced have a few elements
};

Result<Schedule> default_schedule(Compute compute, const CpuScheduleOptions& options);

}  // namespace tessera
