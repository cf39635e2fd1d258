#include "shard/collective_time.h"

#include <algorithm>
#include <bit>
#include <set>

namespace tessera::shard {
namespace {

// One pass of rings over the levels, as of an all-gather or a reduce-scatter.
double ring_pass(double bytes, const GroupShape& shape, const Network& network) {
    double seconds = 0;
    for (size_t l = 0; l < shape.size(); ++l) {
        const auto n = double(shape[l]);
        seconds += (n - 1) * network[l].latency + (n - 1) / n * bytes / network[l].bytes_per_second;
        bytes /= n;
    }
    return seconds;
}

// Down and up a pipelined binary tree at each level.
double tree_passes(double bytes, const GroupShape& shape, const Network& network) {
    double seconds = 0, transfer = 0;
    for (size_t l = 0; l < shape.size(); ++l) {
        if (shape[l] < 2) continue;
        seconds += 2 * double(std::bit_width(uint64_t(shape[l] - 1))) * network[l].latency;
        transfer = std::max(transfer, 2 * bytes / network[l].bytes_per_second);
        bytes /= double(shape[l]);
    }
    return seconds + transfer;
}

// Every device sends an equal part to every other one; the levels' links work at the same time.
double all_to_all(double bytes, const GroupShape& shape, const Network& network) {
    const auto all = double(members(shape));
    double latency = 0, transfer = 0, within = 1;
    for (size_t l = 0; l < shape.size(); ++l) {
        const double reached = within * double(shape[l]);
        latency += (double(shape[l]) - 1) * network[l].latency;
        transfer = std::max(transfer, (reached - within) / all * bytes / network[l].bytes_per_second);
        within = reached;
    }
    return latency + transfer;
}

double send(double bytes, const GroupShape& shape, const Network& network) {
    double seconds = 0;
    for (size_t l = 0; l < shape.size(); ++l)
        if (shape[l] > 1) seconds = network[l].latency + bytes / network[l].bytes_per_second;
    return seconds;
}

}  // namespace

GroupShape group_shape(const Network& network, const std::vector<int64_t>& ranks) {
    GroupShape shape;
    auto left = int64_t(ranks.size());
    for (const NetworkLevel& level : network) {
        std::set<int64_t> blocks;
        for (int64_t r : ranks) blocks.insert(level.devices > 0 && &level != &network.back() ? r / level.devices : 0);
        const auto count = int64_t(blocks.size());
        shape.push_back((left + count - 1) / count);
        left = count;
    }
    return shape;
}

GroupShape group_shape(const Network& network, int64_t stride, int64_t size) {
    std::vector<int64_t> ranks;
    for (int64_t i = 0; i < size; ++i) ranks.push_back(i * stride);
    return group_shape(network, ranks);
}

GroupShape group_shape(const Network& network, const Mesh& mesh, const std::vector<size_t>& axes) {
    return group_shape(network, mesh.group(0, axes));
}

int64_t members(const GroupShape& shape) {
    int64_t n = 1;
    for (int64_t level : shape) n *= level;
    return n;
}

double collective_seconds(CollectiveKind kind, double bytes, const GroupShape& shape, const Network& network) {
    if (members(shape) < 2) return 0;
    switch (kind) {
        case CollectiveKind::AllReduce:
            return std::min(2 * ring_pass(bytes, shape, network), tree_passes(bytes, shape, network));
        case CollectiveKind::ReduceScatter:
        case CollectiveKind::AllGather: return ring_pass(bytes, shape, network);
        case CollectiveKind::AllToAll: return all_to_all(bytes, shape, network);
        case CollectiveKind::SendReceive: return send(bytes, shape, network);
    }
    return 0;
}

}  // namespace tessera::shard
