// Timelines as files of other tools' formats.
#pragma once

#include "tessera/simulate.h"

namespace tessera::shard {

std::string chrome_trace_of(const std::vector<TimelineEvent>& events);

}  // namespace tessera::shard
