// How a tensor is divided over a mesh: for each dimension an ordered list of axes, and the axes over which the ranks
// hold terms that still have to be combined (a partial value). As text: data,_,model+pipe;sum(expert).
#pragma once

#include "expr/expr.h"
#include "shard/mesh.h"

namespace tessera::shard {

struct DimSharding {
    std::vector<size_t> axes;  // the first divides into the largest blocks
    bool open = false;         // propagation may divide further
    bool operator==(const DimSharding&) const = default;
};

struct Sharding {
    std::vector<DimSharding> dims;
    std::vector<size_t> partial;  // axes
    ReduceOp combine = ReduceOp::Sum;
    bool operator==(const Sharding&) const = default;
    bool uses(size_t axis) const;  // divides a dimension over it
};

// "data" divides over an axis and no further, "data+model" over two, "data?" leaves open whether further, "_" is open
// and "-" is whole. `rank`: of the tensor. E0501 for other text, unknown axes, and axes that stand there twice.
Result<Sharding> parse_sharding(std::string_view text, const Mesh& mesh, size_t rank);
std::string to_string(const Sharding& sharding, const Mesh& mesh);
std::string_view combine_name(ReduceOp op);  // sum

// [low, high)
struct Interval {
    int64_t low = 0, high = 0;
    int64_t length() const { return high > low ? high - low : 0; }
    bool contains(const Interval& other) const {
        return other.length() == 0 || (other.low >= low && other.high <= high);
    }
    bool operator==(const Interval&) const = default;
};
using Box = std::vector<Interval>;  // one for each dimension
Box intersect(const Box& a, const Box& b);
int64_t volume(const Box& box);
bool contains(const Box& outer, const Box& inner);
std::vector<int64_t> lengths(const Box& box);

// The block of [0, extent) of a rank: each axis divides into blocks of equal size, rounded up, so that the last ones
// may be smaller or empty. Division by two axes refines division by the first.
Interval block(int64_t extent, const std::vector<size_t>& axes, const Mesh& mesh, int64_t rank);

// What each rank holds of a tensor.
using Placement = std::vector<Box>;
Placement place(const std::vector<int64_t>& sizes, const Sharding& sharding, const Mesh& mesh);
Placement place_whole(const std::vector<int64_t>& sizes, const Mesh& mesh);
bool contains(const Placement& outer, const Placement& inner);

}  // namespace tessera::shard
