// Shardings that a user wrote, of the values of a graph that they name.
#pragma once

#include "shard/plan.h"

namespace tessera::shard {

using Annotations =
    std::vector<std::pair<std::string, std::string>>;  // a name, or a pattern with stars, and a sharding

// The values that a name is of: one, or those that fit a pattern with stars.
std::vector<const Value*> values_named(const Graph& graph, const std::string& name);

// E0501 for what is no sharding of the value. E0401 for a name that no value has, unless not `all` have to be there.
Result<Shardings> read_annotations(const Graph& graph, const Mesh& mesh, const Annotations& annotations,
                                   bool all = true);

}  // namespace tessera::shard
