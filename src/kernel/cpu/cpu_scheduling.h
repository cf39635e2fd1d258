// Processors' schedules: tasks for threads, loops in vectors, register tiles.
#pragma once

#include "kernel/backend/scheduling.h"

namespace tessera {

const Scheduling& cpu_scheduling();

}  // namespace tessera
