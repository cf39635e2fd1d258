// Inserts the expansion of a node beside it.
#pragma once

#include "graph/builder.h"

namespace tessera {

// The node's outputs as smaller ops, created by the builder; unused ones may be null. Nothing if the op has no
// expansion, the expansion fails, or it depends on contents that are only available at run time.
std::optional<std::vector<Value*>> expand_node(const Node& node, Builder& build, bool only_used = false);

}  // namespace tessera
