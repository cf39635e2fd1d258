// A Compute lowered for several kinds of sizes: nests of its default schedule and of others that are faster for some
// sizes, in one kernel, each behind a guard over the symbols. All read the same prepared weights.
#pragma once

#include "base/decision.h"
#include "kernel/lower/join_variants.h"
#include "kernel/schedule/schedule_options.h"

namespace tessera {

// The default schedule, with variants where they pay; what was chosen and why is added to `choices`. Where `traces` is
// given, the primitives of each schedule are added to it: text that Schedule::parse_trace reads, after a comment.
Result<Lowered> lower_variants(const Compute& compute, const ScheduleOptions& options, std::vector<Choice>& choices,
                               std::string* traces = nullptr);

}  // namespace tessera
