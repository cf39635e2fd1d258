// Whether the windows that a rule makes fit wherever those fit that it replaces. A pool whose window fits nowhere has a
// size of 0 only if all but one position is missing (graph/ops/conv_window.h); a larger one is an error, so a rule that
// merges pools may not be applied to a dynamic size that is too small for it.
#pragma once

#include "graph/graph.h"

namespace tessera {

bool windows_fit(const std::vector<Node*>& made, const std::vector<Node*>& replaced);

}  // namespace tessera
