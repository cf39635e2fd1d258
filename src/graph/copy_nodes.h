// Copies the nodes of a nested graph into the enclosing graph.
#pragma once

#include "graph/graph.h"

namespace tessera {

// `from`'s outputs for these inputs, made of copies of its nodes in `to`, which is around it or around what uses it;
// values that it uses from around it stay what they are. E0214 where graphs are nested in it.
Result<std::vector<Value*>> copy_nodes(const Graph& from, Graph& to, const std::vector<Value*>& inputs);

}  // namespace tessera
