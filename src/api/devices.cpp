#include "tessera/devices.h"

#include "runtime/devices/cuda_device.h"

namespace tessera {

std::vector<DeviceInfo> list_devices(std::string* why) {
    std::vector<DeviceInfo> devices{{.target = "host", .name = "the CPU", .code = {}}};
    const auto count = count_gpus();
    if (!count.ok() && why) *why = count.error().message();
    for (int i = 0; count.ok() && i < *count; ++i) {
        const auto gpu = describe_gpu(i);
        DeviceInfo& d = devices.emplace_back();
        d.target = fmt::format("cuda:{}", i);
        if (!gpu.ok()) {
            d.why = gpu.error().message();
            continue;
        }
        d.name = gpu->name;
        d.code = gpu->target;
        d.bytes = gpu->bytes;
        d.capability = 10 * gpu->major + gpu->minor;
        d.processors = gpu->processors;
        d.shared_bytes = gpu->shared_bytes;
        if (d.code.empty())
            d.why = fmt::format("its compute capability is {}.{}, and 8.0 is needed", gpu->major, gpu->minor);
    }
    if (count.ok() && *count == 0 && why) *why = "the driver shows no GPU";
    return devices;
}

}  // namespace tessera
