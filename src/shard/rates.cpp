#include "shard/rates.h"

#include <algorithm>

namespace tessera::shard {

LinkRates Rates::over(const std::vector<size_t>& group) const {
    if (group.empty()) return link;
    LinkRates slowest = along(group[0]);
    for (size_t axis : group) {
        slowest.latency = std::max(slowest.latency, along(axis).latency);
        slowest.bandwidth = std::min(slowest.bandwidth, along(axis).bandwidth);
    }
    return slowest;
}

bool Rates::uniform() const {
    return std::all_of(axes.begin(), axes.end(), [&](const LinkRates& r) { return r == link; });
}

Rates byte_rates(double operations_per_byte) {
    return {.operations = operations_per_byte, .memory = 1e30, .link = {.latency = 0, .bandwidth = 1}};
}

}  // namespace tessera::shard
