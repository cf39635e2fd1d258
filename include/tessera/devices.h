// The devices of this machine that models can run on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct DeviceInfo {
    std::string target;  // for CompileOptions::target: "host", "cuda:1"
    std::string name;
    std::string code;      // the code generator's target, "sm_90a"; empty for the host and for unusable devices
    int64_t bytes = 0;     // memory of a GPU
    int capability = 0;    // compute capability of a GPU as a number: 90 for 9.0
    int processors = 0;    // number of SMs of a GPU
    int shared_bytes = 0;  // largest shared memory of a block
    std::string why = {};  // the reason if the device cannot be used
};

// The host, then all GPUs that the driver reports. Unless null, `why` receives the reason if there are none.
std::vector<DeviceInfo> list_devices(std::string* why = nullptr);

// The target for GPUs of a compute capability; empty if it is too old.
std::string gpu_target(int major, int minor);

// The number of the GPU that owns this memory; nothing if the driver does not know the address.
std::optional<int> gpu_of_memory(const void* memory);

}  // namespace tessera
