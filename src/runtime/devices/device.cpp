#include "runtime/devices/device.h"

#include <array>

#include "base/check.h"
#include "runtime/devices/cpu_device.h"
#include "runtime/devices/cuda_device.h"

namespace tessera {

std::string shown_bytes(int64_t bytes) {
    constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    auto shown = static_cast<double>(bytes);
    size_t unit = 0;
    for (; shown >= 999.5 && unit + 1 < kUnits.size(); ++unit) shown /= 1000;
    return fmt::format("{:.3g} {}", shown, kUnits[unit]);
}

std::string shown_place(int gpu) { return gpu == kNoGpu ? "the CPU" : fmt::format("GPU {}", gpu); }

Device& device_of(DeviceKind kind) {
    switch (kind) {
        case DeviceKind::Cpu: return cpu_device();
    }
    CHECK(false, "there is no device of kind {}", static_cast<int>(kind));
}

Result<Device*> device_for(std::string_view target) {
    if (auto number = cuda_number(target)) return cuda_device(*number);
    return &device_of(DeviceKind::Cpu);
}

Result<std::unique_ptr<Stream>> Device::borrow_stream(void*) {
    return Error(Code::E0701, "{} does not support external streams", name());
}

Status Arena::reserve(int64_t bytes) {
    if (memory_ && bytes <= bytes_) return {};
    memory_.reset();
    bytes_ = 0;
    memory_ = TRY(device_->allocate(bytes));
    bytes_ = bytes;
    return {};
}

}  // namespace tessera
