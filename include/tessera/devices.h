// Where models can run on this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct DeviceInfo {
    std::string target;  // as CompileOptions takes it: "host", "cuda:1"
    std::string name;
    std::string code;      // that is generated for it: "sm_90a"; empty where it cannot be used, and for the host
    int64_t bytes = 0;     // of a GPU's memory
    int capability = 0;    // of a GPU, as a number: 90 where it is 9.0
    int processors = 0;    // that a GPU has
    int shared_bytes = 0;  // of one block, at most
    std::string why = {};  // it cannot be used
};

// The processor, then all GPUs that the driver shows. `why`, unless null: why there are no GPUs.
std::vector<DeviceInfo> list_devices(std::string* why = nullptr);

// The target for GPUs of a compute capability; empty where it is too old.
std::string gpu_target(int major, int minor);

// The number of the GPU whose memory that is; nothing where no driver knows it.
std::optional<int> gpu_of_memory(const void* memory);

}  // namespace tessera
