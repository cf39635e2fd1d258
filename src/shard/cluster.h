// A cluster as data: one kind of device, and the network between them (machines/clusters/*.json).
#pragma once

#include "base/dtype.h"
#include "shard/collective_time.h"

namespace tessera::shard {

struct DeviceSpeeds {
    std::string name;
    std::string target = "host";                             // that kernels are grouped for
    double memory = 0;                                       // bytes
    double bytes_per_second = 0;                             // of memory, as far as kernels reach it
    double scalar_flops = 0;                                 // per second, of all but products
    double launch = 0;                                       // seconds between kernels
    std::vector<std::pair<DType, double>> flops = {};        // peaks of products, by the type of their operands
    std::vector<std::pair<double, double>> efficiency = {};  // of a product of so many operations: fraction of the peak

    double peak(DType operands) const;            // of f32 where the type has none
    double product_fraction(double flops) const;  // between the points by the logarithms
};

struct Cluster {
    std::string name;
    DeviceSpeeds device;
    Network network;
    std::vector<std::string> sources = {};  // of its numbers

    std::string to_json() const;
};

// E0110 where it is none, E0212 for numbers out of range.
Result<Cluster> parse_cluster(const std::string& text, const std::string& source);
// A built-in one by its name, or a file. E0501 hints at a misspelt name.
Result<Cluster> find_cluster(const std::string& name_or_path);
std::vector<std::string> cluster_names();

struct ClusterFile {
    const char* name;
    const char* text;
};
const std::vector<ClusterFile>& built_in_clusters();

}  // namespace tessera::shard
