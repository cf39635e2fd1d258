// What a node with an expansion stands for, beside it.
#pragma once

#include "graph/builder.h"

namespace tessera {

// The node's outputs made of smaller ops, by the builder; those that nobody uses may be null. Nothing where it has no
// expansion, where that fails, or where it depends on contents that only a run knows.
std::optional<std::vector<Value*>> expand_node(const Node& node, Builder& build, bool only_used = false);

}  // namespace tessera
