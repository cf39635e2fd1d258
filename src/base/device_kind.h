// What a buffer's memory and a kernel's code are for.
#pragma once

#include <cstdint>

namespace tessera {

enum class DeviceKind : uint8_t { Cpu };

}  // namespace tessera
