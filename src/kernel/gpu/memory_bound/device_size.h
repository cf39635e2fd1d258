// How much a GPU runs at once, which decides how work is shared: that of an H200.
#pragma once

#include <cstdint>

namespace tessera {

constexpr int64_t kDeviceProcessors = 132;     // streaming multiprocessors
constexpr int64_t kThreadsOfProcessor = 2048;  // resident on each
constexpr int64_t kDeviceThreads = kDeviceProcessors * kThreadsOfProcessor;

}  // namespace tessera
