// The processor itself, as a device: launches are cut over the threads of the process's pool and are done when the call
// returns. Its memory is the process's own.
#pragma once

#include "llvm/compile_kernels.h"
#include "runtime/devices/device.h"

namespace tessera {

Device& cpu_device();

// The iterations [begin, end) of a launch, on this thread: where compiled code is called.
inline void run_range(const Launch& launch, const LaunchArguments& arguments, int64_t begin, int64_t end,
                      char* scratch) {
    const auto function = reinterpret_cast<LaunchFunction>(launch.handle);
    function(arguments.buffers.data(), arguments.symbols.data(), begin, end, scratch);
}

}  // namespace tessera
