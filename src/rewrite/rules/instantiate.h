// Builds a rule's right-hand side for a match. What is made of constants only is computed at once.
#pragma once

#include "rewrite/pass.h"
#include "rewrite/rules/match.h"

namespace tessera {

struct Instance {
    std::vector<Value*> values;  // for the match's roots; each of its root's type
    std::vector<Node*> created;
};

// Empty if it cannot be built: a size is unknown, or the types differ. Only disconnected nodes are left behind
// then.
std::optional<Instance> instantiate(Graph& graph, const Match& match, const PassContext& context);

// The ops of the nodes that it would take, constants not counted.
std::vector<const OpDef*> new_ops(const Match& match);
// Whether the replacement uses the value of this slot.
bool replacement_uses(const Rule& rule, int slot);

}  // namespace tessera
