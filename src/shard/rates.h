// What a device computes and moves in a second, and how fast the links along each axis of a mesh are. A collective
// takes its latency and the time of the bytes that a rank receives.
#pragma once

#include "shard/mesh.h"

namespace tessera::shard {

struct LinkRates {
    double latency = 5e-6;     // seconds for a collective to begin
    double bandwidth = 200e9;  // bytes a second that a rank receives
    bool operator==(const LinkRates&) const = default;
};

// The defaults: GPUs of about 100 Tflop/s and 2 TB/s, linked at 200 GB/s.
struct Rates {
    double operations = 100e12;        // a second
    double memory = 2e12;              // bytes a second
    LinkRates link = {};               // of axes that are not in `axes`
    std::vector<LinkRates> axes = {};  // by number of the mesh's axis

    const LinkRates& along(size_t axis) const { return axis < axes.size() ? axes[axis] : link; }
    LinkRates over(const std::vector<size_t>& group) const;  // the slowest of these axes
    bool uniform() const;                                    // all axes are equal
};

// Bytes as seconds, without latencies: a device computes so many operations while it receives a byte.
Rates byte_rates(double operations_per_byte);

}  // namespace tessera::shard
