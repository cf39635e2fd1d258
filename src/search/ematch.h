// Finds every place of an e-graph where a rule's pattern stands: each op of the pattern may be any member of its class.
// Variables are bound to representatives. What weights alone give counts as constant in conditions.
#pragma once

#include "rewrite/rules/match.h"
#include "search/egraph.h"

namespace tessera {

// Calls `each` for every match whose first root is this member, until it says to stop (true). Match::roots and
// Match::nodes are members. With `second`, only those whose second root is in that value's class.
bool ematch(const EGraph& egraph, const Rule& rule, Value& root, const std::function<bool(const Match&)>& each,
            const Value* second = nullptr);

}  // namespace tessera
