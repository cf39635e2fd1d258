// Long reductions over rows of a matrix of few columns (the gradient of a bias, statistics over the pixels of images)
// in two launches: blocks reduce parts of the rows, with threads that read neighbouring columns; then the parts are
// combined, with what is computed of the results.
#pragma once

#include <functional>

#include "kernel/schedule/schedule.h"
#include "kernel/schedule/schedule_options.h"

namespace tessera {

// `lower_rest` makes the second launch. Empty: it is not of that form, or too small to be worth two launches.
Result<std::optional<Lowered>> column_parts_kernel(const Compute& compute, const ScheduleOptions& options,
                                                   const std::function<Result<Lowered>(const Compute&)>& lower_rest);

}  // namespace tessera
