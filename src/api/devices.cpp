#include "tessera/devices.h"

#include "backends/backend.h"

namespace tessera {

std::vector<DeviceInfo> list_devices(std::string* why) {
    std::vector<DeviceInfo> all;
    for (const Backend* b : backends())
        for (DeviceInfo& d : b->devices(why)) all.push_back(std::move(d));
    return all;
}

}  // namespace tessera
