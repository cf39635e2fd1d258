// A GPU of NVIDIA's, as a device. Its memory is its own: inputs are copied there and outputs back. What is captured
// becomes one graph that the driver launches.
#pragma once

#include <string>

#include "runtime/devices/device.h"

namespace tessera {

// The GPU with that number; created once, never destroyed. E0701 if there is no driver, no such GPU, or it is too
// old.
Result<Device*> cuda_device(int number);

// How many there are, and what one of them is. E0701 where there is no driver, or no such GPU.
Result<int> count_gpus();
struct GpuDescription {
    std::string name;
    int major = 0, minor = 0;  // of its compute capability
    int64_t bytes = 0;         // of its memory
    int processors = 0;        // that it has
    int shared_bytes = 0;      // of one block, at most
    std::string target;        // that code is generated for; empty where it is too old
};
Result<GpuDescription> describe_gpu(int number);

// "cuda" or "cuda:1" as a number; nothing where the name is no GPU of this machine's.
std::optional<int> cuda_number(std::string_view target);

}  // namespace tessera
