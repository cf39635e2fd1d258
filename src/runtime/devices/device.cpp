#include "runtime/devices/device.h"

#include <array>

namespace tessera {

std::string shown_bytes(int64_t bytes) {
    constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    auto shown = static_cast<double>(bytes);
    size_t unit = 0;
    for (; shown >= 999.5 && unit + 1 < kUnits.size(); ++unit) shown /= 1000;
    return fmt::format("{:.3g} {}", shown, kUnits[unit]);
}

std::string shown_place(int gpu) { return gpu == kNoGpu ? "the CPU" : fmt::format("GPU {}", gpu); }

Result<std::shared_ptr<void>> Device::load_code(std::shared_ptr<const DeviceCode>) {
    return Error(Code::E0701, "{} runs no code but kernels", name());
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
