// The graph that is partitioned: at given sizes, optimized, of ops that have bodies as far as possible.
#pragma once

#include "graph/graph.h"

namespace tessera::shard {

// E0501 names a symbol of an input that has no size here.
Result<std::shared_ptr<Graph>> graph_to_shard(const Graph& graph, const SymbolValues& sizes, bool optimized = true);

}  // namespace tessera::shard
