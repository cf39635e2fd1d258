// What the hardware knows of a parameter that it copies tiles of.
#pragma once

#include <array>

#include "runtime/devices/cuda_driver.h"
#include "runtime/devices/device.h"

namespace tessera {

struct alignas(64) TileDescription {
    std::array<char, 128> bytes;
};

// Of the parameter at `base`. E0702 where the driver does not take it.
Status describe_tiles(const cuda::Driver& driver, const BoundMap& map, void* base, TileDescription& to);

}  // namespace tessera
