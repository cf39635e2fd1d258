// Shardings for every value of a graph from those that a user gave to some: both ways through the units' bodies, until
// nothing changes. A dimension follows a variable where each rank's part of the variable reads that rank's part of the
// dimension, or (in a second phase) little more of its neighbours: a halo.
#pragma once

#include <unordered_map>

#include "shard/access.h"

namespace tessera::shard {

using Shardings = std::unordered_map<const Value*, Sharding>;

struct Propagated {
    Shardings values;                    // of every value that can be divided; no dimension is open any more
    std::vector<std::string> conflicts;  // what could not follow, for people
};

// `given`: by value; values that are not in it are open.
Propagated propagate(const Graph& graph, const std::vector<Unit>& units, const Mesh& mesh, const Shardings& given);

// The dimensions of values that go with a variable: dimension `dim` of `value`, read by the unit's read number `read`
// (none: it is the unit's result).
struct Tie {
    const Value* value;
    size_t dim;
    std::optional<size_t> read;
};
std::vector<std::vector<Tie>> ties_of(const Unit& unit);  // by variable

}  // namespace tessera::shard
