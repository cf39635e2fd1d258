// What parts of a model take on an accelerator: as a table, and as JSON.
#pragma once

#include "command.h"

namespace tessera::cli {

// Each part with two virtual threads, and where it was asked for with one.
struct AcceleratorProfile {
    std::vector<DeviceProfile> parts, without;

    // Of layer `l` of part `p`, without virtual threads.
    const DeviceProfile::Layer* without_of(size_t p, size_t l) const {
        return p < without.size() && l < without[p].layers.size() ? &without[p].layers[l] : nullptr;
    }
};

Json accelerator_json(const AcceleratorProfile& profile);
void print_accelerator(const AcceleratorProfile& profile, const std::string& title, size_t most_layers);

}  // namespace tessera::cli
