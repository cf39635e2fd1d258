// How long a collective takes by an alpha-beta model over the levels of a network (within a node, between nodes): a
// latency for each message, and bytes by the bandwidth of one device's links at each level.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shard/mesh.h"

namespace tessera::shard {

// Devices next to each other by rank are connected by the links of the innermost level that holds both.
struct NetworkLevel {
    std::string name;
    int64_t devices = 0;          // that it connects; 0: all, of the outermost level
    double latency = 0;           // seconds of one message
    double bytes_per_second = 0;  // of one device, in one direction, as far as collectives reach it
};
using Network = std::vector<NetworkLevel>;  // innermost first

// The members of a group at each level: {8, 16} are 16 nodes of 8 devices each.
using GroupShape = std::vector<int64_t>;
GroupShape group_shape(const Network& network, const std::vector<int64_t>& ranks);
GroupShape group_shape(const Network& network, int64_t stride, int64_t size);  // ranks that lie so far apart
GroupShape group_shape(const Network& network, const Mesh& mesh, const std::vector<size_t>& axes);
int64_t members(const GroupShape& shape);

enum class CollectiveKind : uint8_t { AllReduce, ReduceScatter, AllGather, AllToAll, SendReceive };

// `bytes`: of the whole tensor: what a device begins with in an all-reduce or reduce-scatter, ends with in an
// all-gather, and what it has before an all-to-all or sends. Rings at each level, one after the other: each level takes
// the part of the tensor that the level within left to one device. An all-reduce takes trees where they are faster.
double collective_seconds(CollectiveKind kind, double bytes, const GroupShape& shape, const Network& network);

}  // namespace tessera::shard
