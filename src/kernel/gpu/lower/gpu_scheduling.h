// Schedules for grids of thread blocks.
#pragma once

#include "kernel/backend/scheduling.h"

namespace tessera {

const Scheduling& gpu_scheduling();

}  // namespace tessera
