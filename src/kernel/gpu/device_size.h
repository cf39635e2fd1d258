// How much a GPU runs at once, which decides how work is shared.
#pragma once

#include "base/machine.h"

namespace tessera {

constexpr int64_t kThreadsOfProcessor = 2048;  // resident on an SM
inline int64_t device_threads(const Machine& machine) { return machine.cores * kThreadsOfProcessor; }

}  // namespace tessera
